"""An exception that nobody expected, anywhere in one client, ends that client with it, and all others are told by name.

It is injected into every call of a machine, and of what the drivers do, one after the other.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import numpy as np
import pytest

from bringup.devices.thread import BackendThread
from bringup.errors import BarrierTimeoutError, PeerFailedError
from bringup.runtime.drivers import coordinator_link, session_pump
from bringup.runtime.drivers.alarm import Alarm
from bringup.runtime.drivers.coordinator import CoordinatorDriver
from bringup.runtime.drivers.coordinator_link import CoordinatorLink
from bringup.runtime.drivers.peer import CoordinationPeer
from bringup.runtime.drivers.ring import RingDriver
from bringup.runtime.drivers.service_server import ServiceServer
from bringup.runtime.drivers.service_sessions import RemoteSessions
from bringup.runtime.drivers.service_transport import RemoteRoute
from bringup.runtime.drivers.session_pump import SessionPump
from bringup.runtime.machines.coordinator.machine import CoordinatorMachine
from bringup.runtime.machines.peer.machine import PeerMachine
from bringup.runtime.machines.service_machine import ServiceMachine
from bringup.runtime.machines.session import limits
from bringup.runtime.machines.session import machine as session_machine
from bringup.runtime.machines.session import table as session_table
from bringup.runtime.machines.session.machine import SessionMachine
from bringup.runtime.machines.session.table import SessionTable
from bringup.transport.collectives.ring import Ring

from .peers import JobOfPeers, job_of_peers
from .places import DEADLINE, MemoryPlace

N = 3
PATIENCE = 5.0

# In which objects of which clients, and in what they are asked to do.
PEER = [(PeerMachine, name) for name in ("handle", "wake", "deadline")]
COORDINATOR = [(CoordinatorMachine, name) for name in ("handle", "deadline")]
SERVICES = [(ServiceMachine, name) for name in ("handle", "wake", "deadline", "leave")]
COORDINATOR_STEPS = [
    "run",
    "_drive",
    "_is_over",
    "introduce",
    "close",
    "_close_table",
    "_take_in",
    "serve",
    "_take",
    "_carry_out",
    "_tell",
    "_perform",
    "_send",
    "_go_on",
    "_pump_of",
]
LINK_STEPS = ["send", "connect", "finish", "_perform", "_tell", "_drop", "_carry", "_forget", "_dial", "_take"]
PUMP_STEPS = ["run", "go_on", "finish", "drop", "_write", "_read"]
SERVICES_STEPS = ["welcome", "close", "open", "pump", "_reply", "_carry_out"]
SERVER_STEPS = ["welcome", "open_session", "handle", "go_on", "leave", "close", "_tell", "_wake"]
ROUTE_STEPS = ["send", "drained", "_perform", "pump", "drop", "lost"]
DRIVERS: list[tuple[type, str]] = [
    (CoordinationPeer, "_perform"),
    (CoordinationPeer, "_start_backend"),
    (CoordinationPeer, "_pass_on"),
    *((CoordinatorDriver, name) for name in COORDINATOR_STEPS),
    *((CoordinatorLink, name) for name in LINK_STEPS),
    *((SessionPump, name) for name in PUMP_STEPS),
    (Alarm, "set"),
    (Alarm, "cancel"),
    (SessionMachine, "opened"),
    (SessionMachine, "put"),
    (SessionMachine, "next_to_send"),
    (SessionMachine, "take"),
    (SessionMachine, "receive"),
    (SessionTable, "open"),
    (SessionTable, "put"),
    (SessionTable, "next_to_send"),
    (SessionTable, "take"),
    (RingDriver, "connect"),
    (RingDriver, "merge"),
    (RingDriver, "_run"),
    (RingDriver, "_watch_link"),
    (Ring, "_reduce"),
    *((RemoteSessions, name) for name in SERVICES_STEPS),
    *((ServiceServer, name) for name in SERVER_STEPS),
    *((RemoteRoute, name) for name in ROUTE_STEPS),
    (BackendThread, "open"),
    (BackendThread, "start"),
    (BackendThread, "check_health"),
]


WAITS = [
    (limits, "END_TIMEOUT"),
    (session_machine, "END_TIMEOUT"),
    (session_table, "END_TIMEOUT"),
    (limits, "LATECOMERS_TIMEOUT"),
    (coordinator_link, "END_TIMEOUT"),
    (session_pump, "END_TIMEOUT"),
]
"""What is waited for at the end, for those who will not come."""

MUTE = [
    (SessionPump, "_read"),
    (CoordinatorLink, "_carry"),
    (CoordinatorLink, "_take"),
    (SessionMachine, "take"),
]
"""Where these fail, there is nothing left to say the cause with: the client is named."""


class Injection:
    """Raises in the n-th call of a method, of the object that a client's is; the n-th call of all, where any is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: type, name: str, turn: int) -> None:
        self.has_happened = False
        self.subject: Any = None
        self._left = turn
        real = getattr(kind, name)

        def call(subject: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.has_happened:
                self._left -= 1
                if self._left == 0:
                    self.has_happened, self.subject = True, subject
                    raise AssertionError("injected")
            return real(subject, *args, **kwargs)

        async def call_async(subject: Any, *args: Any, **kwargs: Any) -> Any:
            return await call(subject, *args, **kwargs)

        monkeypatch.setattr(kind, name, call_async if asyncio.iscoroutinefunction(real) else call)


async def use_all_of_it(job: JobOfPeers, *, time_passes: bool) -> None:
    await job.ups()
    await job.barrier(timeout=PATIENCE)
    if time_passes:
        with pytest.raises(BarrierTimeoutError):
            await job.barrier(1, name="alone", timeout=0.05)
    await asyncio.gather(*(peer.ring.all_reduce(np.ones(3)) for peer in job.peers.values()))
    await job.leave()


def is_own(peer: CoordinationPeer) -> bool:
    return str(peer.failed.value).startswith(
        f"internal error in the runtime of client {peer.machine.config.client_id}: AssertionError: injected"
    )


@pytest.mark.parametrize(
    ("kind", "name"),
    [*PEER, *COORDINATOR, *SERVICES, *DRIVERS],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
async def test_an_exception_anywhere_ends_its_client_and_is_told_to_all(
    kind: type, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def does_happen(turn: int, patch: pytest.MonkeyPatch) -> bool:
        injection = Injection(patch, kind, name, turn)
        async with job_of_peers(MemoryPlace(), N, initialization_timeout=PATIENCE, heartbeat_interval=0.02) as job:
            job.start()
            using = asyncio.create_task(use_all_of_it(job, time_passes=name == "wake"))
            failures = [asyncio.create_task(peer.failed.wait()) for peer in job.peers.values()]
            await asyncio.wait([using, *failures], timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
            if injection.has_happened and any(peer.failed.is_set for peer in job.peers.values()):
                await check(job, caplog, is_mute=(kind, name) in MUTE)
            else:
                assert using.done(), f"turn {turn}: nobody has ended: {[p.machine.phase for p in job.peers.values()]}"
            for task in (using, *failures):
                task.cancel()
            await asyncio.wait([using, *failures])
        return injection.has_happened

    turn = 0
    happened = True
    while happened and turn < 60:
        turn += 1
        caplog.clear()
        with monkeypatch.context() as patch:
            for module, timeout in WAITS:
                patch.setattr(module, timeout, 0.2)
            async with asyncio.timeout(DEADLINE):
                happened = await does_happen(turn, patch)
    assert turn > 1, "it was never called"


async def check(job: JobOfPeers, caplog: pytest.LogCaptureFixture, *, is_mute: bool) -> None:
    culprits = [i for i, peer in job.peers.items() if is_own(peer)]
    assert len(culprits) == 1, {i: (peer.failed.value, peer.machine.phase) for i, peer in job.peers.items()}
    (culprit,) = culprits
    assert isinstance(job.peers[culprit].failed.value.__cause__, AssertionError)  # type: ignore[union-attr]
    assert [
        r for r in caplog.records if r.levelno == logging.CRITICAL and r.exc_info and "injected" in str(r.exc_info[1])
    ]
    done, _ = await asyncio.wait([job.runs[culprit]], timeout=PATIENCE)
    assert done, "it does not end"
    registered = job.registered if culprit in job.registered else set()
    others = [i for i in registered if i != culprit]
    if others:
        await asyncio.wait([job.runs[i] for i in others], timeout=PATIENCE)
    for client_id in others:
        peer = job.peers[client_id]
        if peer.left.is_set:  # all had gone
            continue
        error = peer.failed.value
        assert isinstance(error, PeerFailedError), f"client {client_id}: {error!r}"
        assert error.client_id == culprit
        if culprit == 0 or not is_mute:
            assert "AssertionError: injected" in str(error)
