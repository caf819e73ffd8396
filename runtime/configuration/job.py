"""The job as it is known before the rendezvous: addresses, number of clients, own client id, and their sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, runtime_checkable

from ...transport.addresses import Address
from .job_facts import JobFacts, is_bns


@dataclass(frozen=True, slots=True)
class Considered:
    """One source of the job that was considered.

    Attributes:
        source: its name, `DTENSOR_*` for example.
        verdict: why it was taken or passed over.
    """

    source: str
    verdict: str


@runtime_checkable
class JobSource(Protocol):
    """A source of the job: the arguments, a family of variables, a cluster resolver.

    `name` is shown to users; that of a cluster resolver is the value of `resolver=`.
    """

    @property
    def name(self) -> str:
        """Its name for users."""

    def passed_over(self, environ: Mapping[str, str]) -> str | None:
        """Return the reason why this source does not apply here, or `None` where it does. Never raises."""

    def read(self, environ: Mapping[str, str]) -> JobFacts:
        """Read the job; called only where the source applies.

        Raises:
            ConfigurationError: it is incomplete or malformed; the message names the variable or argument.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """The job, resolved.

    Attributes:
        source: its source: `arguments`, `BRINGUP_*`, `DTENSOR_*`, `KERAS_DISTRIBUTION_*`, `JAX_*`, the name of
            a cluster resolver, or `local mode`.
        jobs: `host:port` of every client, in client order; `None` where only the coordinator's address is known, and in
            local mode.
        coordinator_address: `host:port` of client 0; `None` in local mode.
        num_clients: the number of clients.
        client_id: the id of this client, `0 .. num_clients - 1`.
        local_client_id: the number of this client among those of this host; `None` where unknown.
        job_name: the name of the job.
        num_local_clients: the number of clients of this host, which share its devices; `None` where unknown.
        considered: every source in order, with the reason why it was taken or passed over.
        provenance: field name to the origin of its value.
    """

    source: str
    jobs: tuple[str, ...] | None
    coordinator_address: str | None
    num_clients: int
    client_id: int
    local_client_id: int | None
    job_name: str
    considered: tuple[Considered, ...]
    provenance: Mapping[str, str]
    num_local_clients: int | None = None

    @property
    def is_local(self) -> bool:
        """Whether there is one client and no network."""
        return self.coordinator_address is None

    @property
    def is_alone(self) -> bool:
        """Whether there is one client, which uses no network whatever its address."""
        return self.num_clients == 1

    @property
    def is_loopback(self) -> bool:
        """Whether no known address leads off this machine; so too in local mode."""
        return _are_loopback(self._known_addresses())

    @property
    def own_address(self) -> str | None:
        """The `host:port` of this client, where the source gave one."""
        if self.jobs is not None:
            return self.jobs[self.client_id]
        return self.coordinator_address if self.client_id == 0 else None

    def to_json(self) -> dict[str, object]:
        """The object that `bringup resolve --json` prints."""
        return {
            "source": self.source,
            "jobs": None if self.jobs is None else list(self.jobs),
            "coordinator_address": self.coordinator_address,
            "num_clients": self.num_clients,
            "client_id": self.client_id,
            "local_client_id": self.local_client_id,
            "job_name": self.job_name,
            "considered": [{"source": one.source, "verdict": one.verdict} for one in self.considered],
        }

    def _known_addresses(self) -> tuple[str, ...]:
        if self.jobs is not None:
            return self.jobs
        return () if self.coordinator_address is None else (self.coordinator_address,)


@lru_cache(maxsize=16)  # asked several times of one job, which may be large
def _are_loopback(addresses: tuple[str, ...]) -> bool:
    return all(not is_bns(address) and Address.parse(address).is_loopback for address in addresses)
