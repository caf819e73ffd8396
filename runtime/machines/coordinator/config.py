"""The settings of the coordinator of one job."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorConfig:
    """The settings of a coordinator; durations in seconds.

    Attributes:
        addresses: of every client, or `None` where only the coordinator's is known.
        job_id: 128 random bits in hexadecimal, drawn for this forming of the job.
        group_size: the clients of a group, about; 0 for one group of all.
        has_services: whether the coordination services are served beside.
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
