"""The interface of a cluster resolver: detection from the environment alone, then the job. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable


class Outcome(enum.Enum):
    """The outcome of a detection."""

    ABSENT = "absent"
    """Nothing here is of this cluster."""
    PARTIAL = "partial"
    """It names several processes, but not which of them this is: later resolvers are asked first."""
    ALONE = "alone"
    """It started one process: local mode."""
    PRESENT = "present"
    """It started several processes, of which this is one."""


@dataclass(frozen=True, slots=True)
class Detection:
    """The outcome of a detection, with its ground for people.

    Attributes:
        outcome: see `Outcome`.
        ground: the variables that decided, such as `SLURM_PROCID is not set`.
    """

    outcome: Outcome
    ground: str

    @classmethod
    def absent(cls, ground: str) -> Detection:
        """This cluster is not here."""
        return cls(Outcome.ABSENT, ground)

    @classmethod
    def partial(cls, ground: str) -> Detection:
        """There are several processes, and it is open which of them this is."""
        return cls(Outcome.PARTIAL, ground)

    @classmethod
    def alone(cls, ground: str) -> Detection:
        """This cluster started one process only."""
        return cls(Outcome.ALONE, ground)

    @classmethod
    def present(cls, ground: str) -> Detection:
        """This process is one of several of this cluster."""
        return cls(Outcome.PRESENT, ground)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterJob:
    """The job, as a cluster describes it; one of `jobs` and `coordinator_address` is given.

    Attributes:
        num_clients: the number of clients.
        client_id: the id of this client, `0 .. num_clients - 1`.
        coordinator_address: `host:port` of client 0, the same on every client.
        jobs: `host:port` of every client, in client order.
        local_client_id: the number of this client among those of its host; `None` where unknown.
        num_local_clients: how many clients its host has. They divide its devices; so `None` also where the launcher has
            given each client devices of its own.
        job_name: the name of the job; `None` for the usual one.
        origins: field name to the origin of its value, a variable for example.
    """

    num_clients: int
    client_id: int
    coordinator_address: str | None = None
    jobs: tuple[str, ...] | None = None
    local_client_id: int | None = None
    num_local_clients: int | None = None
    job_name: str | None = None
    origins: Mapping[str, str] = field(default_factory=dict)


@runtime_checkable
class ClusterResolver(Protocol):
    """A way in which a cluster describes its clients.

    An installed distribution offers one through the entry-point group `bringup.resolvers`: an object like this, or a
    callable without arguments, a class for example, that returns one.
    """

    @property
    def name(self) -> str:
        """The value of `resolver=`, and the source that `bringup resolve` prints."""

    def detect(self, environment: Mapping[str, str]) -> Detection | bool:
        """Tell whether this cluster started this process. `True` stands for present, `False` for absent.

        Takes microseconds: no network, no file, nothing but the environment variables. Never raises.
        """

    async def resolve(self, environment: Mapping[str, str]) -> ClusterJob:
        """Return the job. Called where the cluster was detected, or where it was asked for by name.

        May use the network, each wait with a deadline of its own; cancelling is safe.

        Raises:
            ConfigurationError: the job cannot be read; names the variable that is missing or wrong, or the call that
                failed, and the remedy.
        """
