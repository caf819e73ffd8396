"""The facts of a job that need no wait: its clients and devices, their state, the timeline of the bring-up."""

from __future__ import annotations

import concurrent.futures
import math
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import ConfigurationError, PeerFailedError, TopologyError
from ..processes.report import error_to_json
from .client.client import Client
from .configuration.validation import seconds, step_of
from .drivers.peer import CoordinationPeer
from .machines.peer.events import Up
from .machines.phases import phase_named
from .types import Device, Member, Span, devices_of

if TYPE_CHECKING:
    from ..devices.topology.mesh import Mesh
    from ..devices.topology.topology import Topology

_REASON_CHARACTERS_MAX = 1024


class SystemFacts:
    """The base of the asynchronous and of the blocking system: properties and methods that do not wait."""

    def __init__(self, client: Client) -> None:
        assert client.up.value is not None
        self._client = client
        self._up: Up = client.up.value

    @property
    def device_type(self) -> str:
        """The type of the devices: `CPU`, `GPU`, `TPU`, `SIM`, ..."""
        return self._first_peer.device_type

    @property
    def simulated(self) -> bool:
        """Whether the devices do not exist, as those of `SIM`."""
        return self._first_peer.simulated

    @property
    def client_id(self) -> int:
        """This client."""
        return self._client.job.client_id

    @property
    def num_clients(self) -> int:
        """The number of clients of the job."""
        return self._client.job.num_clients

    @property
    def job_name(self) -> str:
        """The name of the job."""
        return self._client.job.job_name

    @property
    def job_id(self) -> str:
        """128 random bits in hexadecimal, drawn each time the job forms."""
        return self._up.job_id

    @property
    def jobs(self) -> tuple[str, ...]:
        """The `host:port` of every client, in client order; empty in local mode."""
        return tuple(member.address for member in self._up.members if member.address)

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """All devices of the job, in client order, then local order."""
        return devices_of(self._up.table, self.device_type, self.job_name)

    @cached_property
    def local_devices(self) -> tuple[Device, ...]:
        """The devices of this client."""
        return tuple(device for device in self.devices if device.client_id == self.client_id)

    @property
    def core_ids(self) -> npt.NDArray[np.int32]:
        """The core ids of all devices: read-only int32 `[num_devices]`, by client, then by local device."""
        return self._up.table.core_ids

    @cached_property
    def topology(self) -> Topology | None:
        """Where all devices sit, or `None` where they have no location."""
        from ..devices.topology.topology import Topology  # when it is asked for: not every job pays for loading it

        table = self._up.table
        return None if table.locations is None else Topology.of_locations(table.counts, table.locations)

    def mesh(
        self,
        shape: Sequence[int],
        dim_names: Sequence[str],
        *,
        ring_dims: int | None = None,
        ring_axes: Sequence[str] | None = None,
        ring_bounds: Sequence[int] | None = None,
        can_split_host_across_rings: bool = True,
        build_ring_across_rings: bool = False,
        rotate_ring_across_rings: bool = False,
    ) -> Mesh:
        """Return a mesh of all devices of the job, with this client's devices as its local ones.

        Its rings are in the orders of DTensor's `create_tpu_mesh`; see `Topology.mesh` for the arguments.
        `topology.best_mesh` looks for the arrangement with the fewest hops.

        Raises:
            ConfigurationError: an argument is malformed, or rings cannot be built as asked.
            TopologyError: the devices have no location, or some places of the machine have no device.
        """
        if self.topology is None:
            raise TopologyError(
                f"mesh(shape={tuple(shape)}) of client {self.client_id}: the {self.device_type} devices of this job "
                "have no location, so that no order is better than another: reshape range(num_devices) instead"
            )
        return self.topology.mesh(
            self.client_id,
            shape,
            dim_names,
            ring_dims=ring_dims,
            ring_axes=ring_axes,
            ring_bounds=ring_bounds,
            can_split_host_across_rings=can_split_host_across_rings,
            build_ring_across_rings=build_ring_across_rings,
            rotate_ring_across_rings=rotate_ring_across_rings,
        )

    @property
    def members(self) -> tuple[Member, ...]:
        """All clients of the job, as this client knows them, or last knew them before the end of the job.

        Their names and addresses are on every client when `initialize()` returns. They are decoded by the first use,
        which takes some 10 ms in a job of 10,000 clients.

        Where more than 64 clients are late at once, only the 64 heard the longest ago show as late: the
        `last_heartbeat_age` of the others is that of clients that are on time.
        """
        machine = self._peer.machine
        now = self._peer.clock()
        members: list[Member] = []
        for info in self._up.members:
            state = machine.state_of(info.client_id)
            step, step_age = self._peer.step_of(info.client_id) or (None, None)
            members.append(
                Member(
                    client_id=info.client_id,
                    address=info.address,
                    hostname=info.hostname,
                    pid=info.pid,
                    incarnation=info.incarnation,
                    phase=phase_named(state.phase),
                    health="healthy" if state.healthy else state.health,
                    is_healthy=state.healthy,
                    last_heartbeat_age=machine.view.age_of(info.client_id, now),
                    step=step,
                    step_age=step_age,
                    reconnects=state.reconnects,
                )
            )
        return tuple(members)

    def report_progress(self, step: int) -> None:
        """Report the step of this client's program: `members` and errors then show how far each client is.

        Cheap, without a wait, for any thread. With `options.stall_timeout` on client 0, a client that stays at one step
        for that time, not waiting for others in a collective or barrier, has failed.

        Args:
            step: 0 or more; a step that is reported again is no progress.

        Raises:
            ConfigurationError: it is no such number.
            PeerFailedError: the job has failed.
        """
        self._peer.report_progress(step)

    def announce_preemption(self, deadline: float = 0.0, reason: str = "announce_preemption()") -> None:
        """Announce the preemption of this client: see `reached_preemption_point`. Does not wait; for any thread.

        Args:
            deadline: seconds until then; all save 15 minutes before, or as soon as they can.
            reason: for the logs of all clients; its first 1,024 characters are sent.

        Raises:
            ConfigurationError: `deadline` is no number.
        """
        self._check_services("announce_preemption()")
        deadline_in = seconds(deadline)
        if deadline_in is None:
            raise ConfigurationError(f"announce_preemption(deadline={deadline!r}): give a number of seconds")
        self._peer.preemption.announce(deadline_in, str(reason)[:_REASON_CHARACTERS_MAX])

    def _reached(self, step: int) -> concurrent.futures.Future[bool] | bool:
        self._check_services("reached_preemption_point()")
        return self._peer.preemption.reached(step_of("reached_preemption_point", step))

    @property
    def failure(self) -> PeerFailedError | None:
        """The failure that ended the job, with a client's name; `None` also where this client's program ended it."""
        self._check_process()
        return self._client.failure

    @property
    def timeline(self) -> tuple[Span, ...]:
        """The phases of this client's bring-up, then, of each phase, the slowest client's where that is another's.

        Starts and durations are in seconds since that client called `initialize()`.
        """
        slowest = (span for span in self._up.slowest if span.client_id != self.client_id)
        spans = *self._first_peer.machine.timeline.spans(), *slowest
        return tuple(Span(span.name, span.start, span.duration, span.client_id) for span in spans)

    def to_json(self) -> dict[str, Any]:
        """Return all of these facts, as they are now, as a value for JSON.

        Members, devices and spans of the timeline have their attributes as keys; what is not known is `None`.
        """
        return {
            "job_id": self.job_id,
            "job_name": self.job_name,
            "jobs": list(self.jobs),
            "client_id": self.client_id,
            "num_clients": self.num_clients,
            "device_type": self.device_type,
            "simulated": self.simulated,
            "core_ids": self.core_ids.tolist(),
            "devices": [asdict(device) for device in self.devices],
            "local_device_ids": [device.id for device in self.local_devices],
            "topology": None if self.topology is None else self.topology.to_json(),
            "members": [_finite(asdict(member)) for member in self.members],
            "timeline": [_span_to_json(span) for span in self.timeline],
            "failure": None if self.failure is None else error_to_json(self.failure),
        }

    @property
    def _peer(self) -> CoordinationPeer:
        """This process's part in the job.

        Raises:
            NotInitializedError: it has none: it was forked from the client.
        """
        self._check_process()
        return self._first_peer

    @property
    def _first_peer(self) -> CoordinationPeer:
        """The same, also in a forked child, for facts that do not change once the job is up."""
        assert self._client.peer is not None
        return self._client.peer

    def _check_process(self) -> None:
        if self._client.is_forked:
            raise self._client.end_error()

    def _check_services(self, what: str) -> None:
        who = None if self._up.has_services else "client 0"
        if not self._client.plan.enable_coordination_service:
            who = "this client"
        if who is not None:
            raise ConfigurationError(
                f"{what} needs the coordination services, which {who} switched off "
                "(enable_coordination_service=False): initialize with them on"
            )

    def _end_of_job(self) -> PeerFailedError | None:
        """Return the result of `wait_failed`, after the end of the job."""
        if self.failure is None and self._client.failed.is_set:
            raise self._client.end_error()
        return self.failure

    def __repr__(self) -> str:
        state = f"failed: {self._client.failed.value}" if self._client.failed.is_set else self._client.phase
        count = len(self._up.table.core_ids)
        devices = f"{'simulated ' * self.simulated}{self.device_type} device{'s' * (count != 1)}"
        return f"<{type(self).__name__} client {self.client_id} of {self.num_clients}, {count} {devices}, {state}>"


def _finite(facts: dict[str, Any]) -> dict[str, Any]:
    """Return facts without infinity, which JSON has not: a time that has never been."""
    return {name: None if isinstance(value, float) and math.isinf(value) else value for name, value in facts.items()}


def _span_to_json(span: Span) -> dict[str, Any]:
    return {"phase": str(span.name), "start": span.start, "duration": span.duration, "client_id": span.client_id}
