"""The settings of the coordinator of one job."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..job_lists import digest_of


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorConfig:
    """The settings of a coordinator; durations in seconds.

    Attributes:
        addresses: of every client, or `None` where only the coordinator's is known.
        job_id: 128 random bits in hexadecimal, drawn for this forming of the job.
        group_size: the clients of a group, about; 0 for one group of all.
        has_services: whether the coordination services are served beside.
        jobs_digest: of `addresses`; each client's is compared with it.
        stall_timeout: at one step of its program a client has stalled after this; `None` for never.
    """

    num_clients: int
    job_name: str
    job_id: str
    heartbeat_interval: float
    heartbeat_timeout: float
    stall_timeout: float | None = None
    group_size: int = 0
    has_services: bool = True
    addresses: tuple[str, ...] | None = None
    jobs_digest: str = field(init=False, default="")

    def __post_init__(self) -> None:
        # Once: to join and hash the list for each client takes the square of their number.
        object.__setattr__(self, "jobs_digest", digest_of(self.addresses))
