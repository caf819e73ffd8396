"""The environment variables that bringup reads: those of the job, of the clients of a host, and misspelt ones.

A family of variables applies if one of its identifying variables is set and not empty. Then all settings are read from
it: a missing one is an error, and never taken from another family.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import fields

from ...devices.registry import offered_types
from ...errors import ConfigurationError
from ...processes.report import LAUNCHER
from .handed_tokens import TOKEN_FD
from .job import JobSource
from .job_facts import JobFacts, find_job, incomplete
from .options import UNAVAILABLE, Options
from .settings import Origin, Setting, as_integer

LOCAL_CLIENT_ID = "BRINGUP_LOCAL_CLIENT_ID"
NUM_LOCAL_CLIENTS = "BRINGUP_NUM_LOCAL_CLIENTS"

# A slip (a port in the place of a number of clients) is to be refused; no host runs as many clients.
_LOCAL_CLIENTS_MAX = 1 << 16

_ARGUMENTS = ("on_failure", "reset", "local_device_ids", "num_logical_cpu_devices", "device_type")
# Of difflib: a name that differs in a letter or two, and no other option.
_CLOSE = 0.7

_PREFIX = "BRINGUP_"

_UNSET = Setting("", None, Origin.DEFAULT)


class _Family:
    """A family of variables: their names, and the rules that all families share."""

    prefix: str
    jobs: str
    client_id: str
    num_clients: str | None = None
    job_name: str | None = None

    @property
    def name(self) -> str:
        return f"{self.prefix}*"

    def identifying(self) -> tuple[str, ...]:
        return tuple(name for name in (self.jobs, self.num_clients, self.client_id) if name is not None)

    def passed_over(self, environ: Mapping[str, str]) -> str | None:
        names = self.identifying()
        if any(Setting.from_environ(environ, name).is_set for name in names):
            return None
        return self._absence(environ, names)

    def read(self, environ: Mapping[str, str]) -> JobFacts:
        return find_job(
            jobs=Setting.from_environ(environ, self.jobs),
            num_clients=_optional(environ, self.num_clients),
            client_id=Setting.from_environ(environ, self.client_id),
            job_name=_optional(environ, self.job_name),
        )

    def _absence(self, environ: Mapping[str, str], names: tuple[str, ...]) -> str:
        states = ", ".join(f"{name} is {'empty' if name in environ else 'not set'}" for name in names)
        lone_name = f"; {self.job_name} alone names no clients"
        return states + lone_name if _optional(environ, self.job_name).is_set else states


class BringupFamily(_Family):
    """bringup's variables: the addresses of all clients, or the coordinator's with the number of clients."""

    prefix = "BRINGUP_"
    jobs = "BRINGUP_JOBS"
    num_clients = "BRINGUP_NUM_CLIENTS"
    client_id = "BRINGUP_CLIENT_ID"
    job_name = "BRINGUP_JOB_NAME"


class DTensorFamily(_Family):
    """The variables of tf.experimental.dtensor, after its documentation: an empty `DTENSOR_JOBS` means local mode.

    A client id that is not given is 0, in a job of many clients too. `DTENSOR_NUM_CLIENTS` is not read there either.
    """

    prefix = "DTENSOR_"
    jobs = "DTENSOR_JOBS"
    client_id = "DTENSOR_CLIENT_ID"
    job_name = "DTENSOR_JOB_NAME"

    def passed_over(self, environ: Mapping[str, str]) -> str | None:
        client_id = Setting.from_environ(environ, self.client_id)
        needs_jobs = client_id.is_set and not re.fullmatch(r"[+-]?0+", str(client_id.value))
        if needs_jobs or Setting.from_environ(environ, self.jobs).is_set:
            return None
        absence = self._absence(environ, (self.jobs,))
        return f"{absence}, which asks for local mode" if self.jobs in environ else absence

    def read(self, environ: Mapping[str, str]) -> JobFacts:
        client_id = Setting.from_environ(environ, self.client_id)
        if not client_id.is_set and self.client_id in environ:
            # Most likely a launcher's variable that was never filled: every client would take itself for client 0.
            raise ConfigurationError(
                f"{self.client_id}={environ[self.client_id]!r} is empty: set it to the number of this client"
            )
        return find_job(
            jobs=Setting.from_environ(environ, self.jobs),
            num_clients=_UNSET,
            client_id=client_id if client_id.is_set else Setting(self.client_id, 0, Origin.DEFAULT),
            job_name=Setting.from_environ(environ, self.job_name),
        )


class KerasFamily(_Family):
    """The variables of keras.distribution: all addresses, or the coordinator's with the number of processes."""

    prefix = "KERAS_DISTRIBUTION_"
    jobs = "KERAS_DISTRIBUTION_JOB_ADDRESSES"
    num_clients = "KERAS_DISTRIBUTION_NUM_PROCESSES"
    client_id = "KERAS_DISTRIBUTION_PROCESS_ID"


class JaxFamily(_Family):
    """The variables of jax programs: the coordinator's address, the number of processes and the process id."""

    prefix = "JAX_"
    jobs = "JAX_COORDINATOR_ADDRESS"
    num_clients = "JAX_NUM_PROCESSES"
    client_id = "JAX_PROCESS_ID"

    def read(self, environ: Mapping[str, str]) -> JobFacts:
        settings = [Setting.from_environ(environ, name) for name in self.identifying()]
        missing = [setting.name for setting in settings if not setting.is_set]
        if missing:
            raise incomplete(" with ".join(str(setting) for setting in settings if setting.is_set), missing)
        if "," in environ[self.jobs]:
            raise settings[0].error("must be one host:port, the coordinator's: a list belongs in BRINGUP_JOBS")
        return super().read(environ)


FAMILIES: tuple[JobSource, ...] = (BringupFamily(), DTensorFamily(), KerasFamily(), JaxFamily())


def _optional(environ: Mapping[str, str], name: str | None) -> Setting:
    return _UNSET if name is None else Setting.from_environ(environ, name)


def local_clients(environ: Mapping[str, str]) -> tuple[int, int] | None:
    """Return the number of this client on its host, and the count of clients there; `None` where neither is set.

    Raises:
        ConfigurationError: one of the two variables is missing or malformed.
    """
    local_id, count = (Setting.from_environ(environ, name) for name in (LOCAL_CLIENT_ID, NUM_LOCAL_CLIENTS))
    if not local_id.is_set and not count.is_set:
        return None
    for given, missing in ((local_id, count), (count, local_id)):
        if not missing.is_set:
            raise incomplete(str(given), [missing.name], "describes the clients of a host")
    number = as_integer(count, "a number of clients", least=1, most=_LOCAL_CLIENTS_MAX)
    return as_integer(local_id, f"a client's number among {number} of its host", least=0, most=number - 1), number


VARIABLES = frozenset(
    {
        *(f"{_PREFIX}{field.name.upper()}" for field in fields(Options)),
        "BRINGUP_JOBS",
        "BRINGUP_CLIENT_ID",
        "BRINGUP_NUM_CLIENTS",
        "BRINGUP_JOB_NAME",
        "BRINGUP_PORT",
        LOCAL_CLIENT_ID,
        NUM_LOCAL_CLIENTS,
        TOKEN_FD,
        "BRINGUP_HOST_CUDA_VISIBLE_DEVICES",
        LAUNCHER,
        "BRINGUP_CPU_LOCATION",
        "BRINGUP_SIM_FAULT",
        "BRINGUP_SIM_START_SECONDS",
        "BRINGUP_SIM_TOPOLOGY",
    }
)
"""All variables that begin with `BRINGUP_` and mean something to bringup itself."""


def unknown_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that begin with `BRINGUP_` and have no effect, each with a warning for the log.

    Those that begin with `BRINGUP_<TYPE>_` are the settings of a backend that an installed distribution offers.
    """
    strange = sorted(name for name in environ if name.startswith(_PREFIX) and name not in VARIABLES)
    if strange:
        of_backends = tuple(f"{_PREFIX}{device_type}_" for device_type in offered_types())
        strange = [name for name in strange if not name.startswith(of_backends)]
    return {name: f"{name} is no variable that bringup reads, and has no effect{_advice(name)}" for name in strange}


def _advice(name: str) -> str:
    argument = name.removeprefix(_PREFIX).lower()
    if argument in _ARGUMENTS:
        return f": {argument} is an argument of initialize() only"
    offered = [known.removeprefix(_PREFIX) for known in VARIABLES if known[len(_PREFIX) :].lower() not in UNAVAILABLE]
    closest = difflib.get_close_matches(name.removeprefix(_PREFIX), offered, n=1, cutoff=_CLOSE)
    return (
        f": the closest is {_PREFIX}{closest[0]}" if closest else ": `bringup resolve` shows the options that there are"
    )
