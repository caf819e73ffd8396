"""The four facts of a job (addresses, number of clients, client id, name), complete and in agreement or refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...errors import ConfigurationError
from .job_list import as_jobs
from .settings import Setting, as_integer, as_text

# A slip (a port in the place of the number of clients) must not make every client allocate for it.
_MOST_CLIENTS = 1 << 20
_JOB_NAME = re.compile(r"[A-Za-z0-9_.\-/]{1,255}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one source says of the job, already checked.

    Attributes:
        jobs: the addresses of all clients, in client order; `None` where only the coordinator's is known.
        coordinator_address: client 0's address; `None` in local mode.
        num_clients: how many clients.
        client_id: which one this is.
        local_client_id: which one this is among those of this machine; `None` where the source does not say.
        job_name: `None` where the source does not say.
        provenance: field name to where its value came from; "default" for those it leaves out.
    """

    jobs: tuple[str, ...] | None = None
    coordinator_address: str | None = None
    num_clients: int = 1
    client_id: int = 0
    local_client_id: int | None = None
    job_name: str | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)


def find_job(*, jobs: Setting, num_clients: Setting, client_id: Setting, job_name: Setting) -> Finding:
    """Check the four facts, from whatever source.

    One address with a larger number of clients is the coordinator's. Without addresses there is only local mode.

    Raises:
        ConfigurationError: something is missing, malformed or contradicts the rest.
    """
    name = as_job_name(job_name) if job_name.is_set else None
    given = _num_clients(num_clients) if num_clients.is_set else None
    if not jobs.is_set:
        return _find_local(jobs, num_clients, client_id, given, name)
    addresses = as_jobs(jobs)
    count = len(addresses) if given is None else given
    if len(addresses) not in (1, count):
        raise num_clients.error(f"does not agree with {jobs.name}, which has {len(addresses)} addresses: correct one")
    counted = num_clients.where if given is not None else f"the length of {jobs.where}"
    return Finding(
        jobs=addresses if len(addresses) == count else None,
        coordinator_address=addresses[0],
        num_clients=count,
        client_id=_client_id(client_id, count, counted, num_clients),
        job_name=name,
        provenance={
            "jobs": jobs.where,
            "coordinator_address": jobs.where,
            "num_clients": counted,
            "client_id": client_id.where if client_id.is_set else "default",
            "job_name": job_name.where if job_name.is_set else "default",
        },
    )


def as_job_name(setting: Setting) -> str:
    """Read the name of a job: 1 to 255 letters, digits and `_ . - /`.

    Raises:
        ConfigurationError: it is something else.
    """
    name = as_text(setting)
    if not _JOB_NAME.fullmatch(name):
        raise setting.error("is not the name of a job: use 1 to 255 letters, digits, and the signs _ . - /")
    return name


def incomplete(present: str, missing: list[str], meaning: str = "describes a job") -> ConfigurationError:
    """The error of a source that applies and lacks what it needs."""
    names = " and ".join(missing)
    verb = "is" if len(missing) == 1 else "are"
    return ConfigurationError(f"{present} {meaning}, but {names} {verb} not set: give {names} as well")


def _find_local(
    jobs: Setting, num_clients: Setting, client_id: Setting, given: int | None, job_name: str | None
) -> Finding:
    """Without addresses, a single client that says so is complete, and anything else is not."""
    if given != 1:
        if client_id.is_set:
            as_integer(client_id, "a client id", least=0, most=_MOST_CLIENTS)
        raise incomplete(str(num_clients if num_clients.is_set else client_id), [jobs.name])
    _client_id(client_id, 1, num_clients.where, num_clients)
    return Finding(job_name=job_name, provenance={"num_clients": num_clients.where})


def _num_clients(setting: Setting) -> int:
    return as_integer(setting, "a number of clients", least=1, most=_MOST_CLIENTS)


def _client_id(setting: Setting, count: int, counted: str, num_clients: Setting) -> int:
    if not setting.is_set:
        if count == 1:
            return 0
        raise ConfigurationError(
            f"{setting.name} is not set, and the job has {count} clients (from {counted}): "
            f"set {setting.name} to the number of this client, {_ids(count)}"
        )
    client_id = as_integer(setting, "a client id", least=0, most=_MOST_CLIENTS)
    if client_id >= count:
        lone = count == 1 and num_clients.name and not num_clients.is_set
        hint = f", or {num_clients.name} as well where the one address is the coordinator's" if lone else ""
        raise setting.error(f"must be < {count}, the number of clients (from {counted}): give {_ids(count)}{hint}")
    return client_id


def _ids(count: int) -> str:
    return "0" if count == 1 else f"0 to {count - 1}"
