"""The facts of a job (addresses, number of clients, client id, name): parsed, and checked against each other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...errors import ConfigurationError
from ...transport.addresses import Address
from .settings import Setting, as_integer, as_text

# A slip (a port in the place of the number of clients) must not make every client allocate for it.
_MOST_CLIENTS = 1 << 20
_BNS_PREFIX = "/bns/"
_BNS_NAME = re.compile(r"/bns/[!-~]{1,1000}")
_BNS_TASK_ID = re.compile(r"[0-9]{1,10}")
_JOB_NAME = re.compile(r"[A-Za-z0-9_.\-/]{1,255}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """The facts of a job from one source, checked.

    Attributes:
        jobs: the addresses of all clients, in client order; `None` where only the coordinator's is known.
        coordinator_address: client 0's address; `None` in local mode.
        num_clients: the number of clients.
        client_id: the id of this client.
        local_client_id: the number of this client among those of this host; `None` where the source has none.
        job_name: `None` where the source has none.
        provenance: field name to the origin of its value; "default" for those that the source leaves out.
    """

    jobs: tuple[str, ...] | None = None
    coordinator_address: str | None = None
    num_clients: int = 1
    client_id: int = 0
    local_client_id: int | None = None
    job_name: str | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)


def find_job(*, jobs: Setting, num_clients: Setting, client_id: Setting, job_name: Setting) -> JobFacts:
    """Parse and check the facts of a job.

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
    return JobFacts(
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
    """Return the error for a source that applies and lacks some of its settings."""
    names = " and ".join(missing)
    verb = "is" if len(missing) == 1 else "are"
    return ConfigurationError(f"{present} {meaning}, but {names} {verb} not set: give {names} as well")


def _find_local(
    jobs: Setting, num_clients: Setting, client_id: Setting, given: int | None, job_name: str | None
) -> JobFacts:
    """Without addresses, a single client that says so is complete, and anything else is not."""
    if given != 1:
        if client_id.is_set:
            as_integer(client_id, "a client id", least=0, most=_MOST_CLIENTS)
        raise incomplete(str(num_clients if num_clients.is_set else client_id), [jobs.name])
    _client_id(client_id, 1, num_clients.where, num_clients)
    return JobFacts(job_name=job_name, provenance={"num_clients": num_clients.where})


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


def is_bns(address: str) -> bool:
    """Whether it is a BNS name, which only BNS itself resolves to `host:port`."""
    return address.startswith(_BNS_PREFIX)


def as_jobs(setting: Setting) -> tuple[str, ...]:
    """Parse the list of addresses, one per client in client order, into their canonical form.

    Args:
        setting: comma-separated text, or a sequence of text; blanks around entries do not matter.

    Returns:
        `host:port` per client; or BNS names as they came, sorted by task id.

    Raises:
        ConfigurationError: an entry is empty, malformed or there twice, or BNS names are not sorted.
    """
    entries = [entry.strip() for entry in _entries(setting)]
    for position, entry in enumerate(entries):
        if not entry:
            raise _error(setting, position, "is empty: is there a comma too many?")
    if any(is_bns(entry) for entry in entries):
        jobs = _bns_names(setting, entries)
    else:
        jobs = tuple(_address(setting, position, entry) for position, entry in enumerate(entries))
    _refuse_duplicates(setting, jobs)
    return jobs


def _entries(setting: Setting) -> Sequence[str]:
    value = setting.value
    if isinstance(value, str):
        if not value.strip():
            raise setting.error("is empty: give one host:port per client, or leave it out")
        if ";" in value:
            raise setting.error("has a semicolon in it: separate the addresses by commas")
        return value.split(",")
    if not isinstance(value, Sequence) or isinstance(value, bytes | bytearray | memoryview):
        raise setting.error(f"must be comma-separated text or a sequence of text, not a {type(value).__name__}")
    if not value:
        raise setting.error("is empty: give one host:port per client, or leave it out")
    for position, entry in enumerate(value):
        if not isinstance(entry, str):
            raise _error(setting, position, f"is not text, but {entry!r}")
    return value


def _address(setting: Setting, position: int, entry: str) -> str:
    try:
        address = Address.parse(entry)
    except ValueError as error:
        raise _error(setting, position, f"is not an address: {error}") from None
    if address.is_wildcard:
        raise _error(setting, position, f"is {entry!r}, which means every interface: give one that others can dial")
    return str(address)


def _bns_names(setting: Setting, entries: list[str]) -> tuple[str, ...]:
    task_ids = [_bns_task_id(setting, position, entry) for position, entry in enumerate(entries)]
    if task_ids != sorted(task_ids):
        raise ConfigurationError(
            f"Unexpected {setting.name} content {','.join(entries)!r:.200}. Sort entries in {setting.name} by task id, "
            "for their order gives the clients their ids."
        )
    return tuple(entries)


def _bns_task_id(setting: Setting, position: int, entry: str) -> int:
    if not is_bns(entry):
        raise _error(setting, position, f"is {entry!r}, among BNS names: give either BNS names or host:port, not both")
    task_id = entry.rpartition("/")[2].partition(":")[0]
    if not _BNS_NAME.fullmatch(entry) or not _BNS_TASK_ID.fullmatch(task_id):
        raise _error(
            setting, position, f"is {entry!r}, which does not end with an integer task id, as /bns/cell/7 does"
        )
    return int(task_id)


def _refuse_duplicates(setting: Setting, jobs: tuple[str, ...]) -> None:
    seen: dict[str, int] = {}
    for position, address in enumerate(jobs):
        first = seen.setdefault(address, position)
        if first != position:
            raise setting.error(
                f"has {address!r} twice, at positions {first} and {position} (counted from 0, as client ids are): "
                "every client needs an address of its own"
            )


def _error(setting: Setting, position: int, complaint: str) -> ConfigurationError:
    return setting.error(f"cannot be read: the entry at position {position} (counted from 0) {complaint}")
