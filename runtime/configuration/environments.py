"""The families of environment variables that may say who the clients of a job are.

A family applies as soon as one of its identifying variables is set and not empty; from then on everything is read from
it, and what it leaves out is an error, never filled from another family.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...errors import ConfigurationError
from .finding import Finding, find_job, incomplete
from .job import JobSource
from .settings import Origin, Setting

_UNSET = Setting("", None, Origin.DEFAULT)


class _Family:
    """A family without rules of its own: no more than the names of its variables, as far as it has them."""

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

    def read(self, environ: Mapping[str, str]) -> Finding:
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
    """Our own variables: a list, or the coordinator's address with the number of clients."""

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

    def read(self, environ: Mapping[str, str]) -> Finding:
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
    """The variables of keras.distribution: a list, or the coordinator's address with the number of processes."""

    prefix = "KERAS_DISTRIBUTION_"
    jobs = "KERAS_DISTRIBUTION_JOB_ADDRESSES"
    num_clients = "KERAS_DISTRIBUTION_NUM_PROCESSES"
    client_id = "KERAS_DISTRIBUTION_PROCESS_ID"


class JaxFamily(_Family):
    """The variables that jax programs are started with: the coordinator's address, and both numbers."""

    prefix = "JAX_"
    jobs = "JAX_COORDINATOR_ADDRESS"
    num_clients = "JAX_NUM_PROCESSES"
    client_id = "JAX_PROCESS_ID"

    def read(self, environ: Mapping[str, str]) -> Finding:
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
