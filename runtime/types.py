"""The public types of a system's devices and members, its timeline, and the changes of its keys."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from ..devices.base import CoreLocation
from .machines.core_table import CoreTable
from .machines.phases import Phase


@dataclass(frozen=True, slots=True)
class Device:
    """One device (core) of the job.

    Attributes:
        id: its position in the job, `0 .. num_devices - 1`: by client, then by local index.
        client_id: the client it belongs to.
        local_index: its position among that client's devices.
        device_type: `CPU`, `GPU`, `TPU`, `SIM`, ...
        core_id: the id the merge gave or confirmed, unique in the job.
        location: where it sits in the machine, or `None`.
        kind: the model, as its backend names it.
        name: as TensorFlow names it: `/job:worker/replica:0/task:1/device:TPU:0`.
    """

    id: int
    client_id: int
    local_index: int
    device_type: str
    core_id: int
    location: CoreLocation | None
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Member:
    """One client of the job, as this client knows it.

    Attributes:
        client_id: its id.
        address: its address in the job, or that of its links where the job has none.
        hostname: the host it runs on.
        pid: its process there.
        incarnation: 64 random bits, drawn when it started.
        phase: `ready` in a job that is up, `leaving` once it shuts down, `closed` after all have; `failed` where it
            failed, and the job with it. This client's own is exact.
        health: `healthy`, or the defect of its devices, or its failure.
        is_healthy: whether it has neither.
        last_heartbeat_age: seconds since its last heartbeat known to this client; exact to a heartbeat interval, or to
            two where groups watch.
        step: the last step that its program reported (`report_progress`), or `None`. In a job of more than 16 clients
            only the steps of those furthest behind are current.
        step_age: seconds since that report.
        reconnects: the number of its connections to the coordinator that broke and were restored in time. Where very
            many clients change at once, changes of this and of health are known after some heartbeats: 64 with each.
    """

    client_id: int
    address: str
    hostname: str
    pid: int
    incarnation: int
    phase: Phase
    health: str
    is_healthy: bool
    last_heartbeat_age: float
    step: int | None
    step_age: float | None
    reconnects: int


@dataclass(frozen=True, slots=True)
class Span:
    """One phase of one client's bring-up; `start` and `duration` in seconds since that client began.

    Attributes:
        name: the phase.
        start: when it began.
        duration: how long it took.
        client_id: the client.
    """

    name: str
    start: float
    duration: float
    client_id: int

    def __repr__(self) -> str:
        times = f"start={self.start:.6f}, duration={self.duration:.6f}"
        return f"Span(name={str(self.name)!r}, {times}, client_id={self.client_id})"


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A key of the key-value store was set or deleted.

    Attributes:
        key: in full.
        value: the new value; `None`: it was deleted.
        revision: counts the changes of the store. Those of one delete bear the same, that of the last of them. What a
            watch begins with bears the revision at which it began.
    """

    key: str
    value: bytes | None
    revision: int


def devices_of(table: CoreTable, device_type: str, job_name: str) -> tuple[Device, ...]:
    """Return the devices of a merged table."""
    kind_of = itertools.chain.from_iterable(itertools.repeat(run.kind, run.count) for run in table.kinds.runs)
    owners = ((client_id, index) for client_id, count in enumerate(table.counts.tolist()) for index in range(count))
    return tuple(
        Device(
            id=row,
            client_id=client_id,
            local_index=index,
            device_type=device_type,
            core_id=core_id,
            location=table.location(row),
            kind=kind,
            name=f"/job:{job_name}/replica:0/task:{client_id}/device:{device_type}:{index}",
        )
        for row, (core_id, (client_id, index), kind) in enumerate(
            zip(table.core_ids.tolist(), owners, kind_of, strict=True)
        )
    )
