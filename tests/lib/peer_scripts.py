"""A peer machine at each stage of its life, driven one event at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from bringup.devices.base import LocalDevice
from bringup.runtime.machines.core_table import CoreTable
from bringup.runtime.machines.device_kinds import DeviceKinds
from bringup.runtime.machines.peer import events as ev
from bringup.runtime.machines.peer.machine import PeerMachine
from bringup.runtime.machines.roster import Roster
from bringup.transport.wire.messages import (
    ClientMessage,
    Commit,
    CoordinatorMessage,
    Formed,
    GroupPlace,
    HeartbeatAck,
    MemberInfo,
    Verdict,
)

from .peer_configs import peer_config

N = 4


CONFIG = peer_config(N, addresses=tuple(f"h{client_id}:9000" for client_id in range(N)))


MEMBERS = tuple(MemberInfo(i, f"h{i}:9000", f"node-{i}", i, 1000 + i, f"h{i}:5000") for i in range(N))


FORMED = Formed("ab" * 16, 1, GroupPlace(0, 1, 0, N - 1), (MEMBERS[0], MEMBERS[2]))


ROSTER = Roster.of(MEMBERS)


DEVICES = (LocalDevice("SIM", 3), LocalDevice("SIM", 1), LocalDevice("odd", 2))


TABLE = CoreTable(
    np.ones(N, np.int32), np.arange(N, dtype=np.int32), None, b"digest", DeviceKinds(b"", (), np.zeros(0, int))
)


VERDICT = Verdict("PeerFailedError", 2, "h2:9000", "node-2", "merge", "process died", (), ())


class Script:
    """A peer machine and what it asked for, with the tags by effect."""

    def __init__(self) -> None:
        self.machine = PeerMachine(CONFIG, 0.0)
        self.now = 0.0
        self.tags: dict[type, ev.Tag] = {}

    def take(self, event: ev.PeerEvent, now: float | None = None) -> list[Any]:
        self.now = self.now if now is None else now
        return self._kept(self.machine.handle(event, self.now))

    def hear(self, message: CoordinatorMessage, now: float | None = None) -> list[Any]:
        return self.take(ev.Received(message), now)

    def wake(self, now: float) -> list[Any]:
        self.now = now
        return self._kept(self.machine.wake(now))

    def pass_time(self, until: float) -> list[Any]:
        """Wake the machine whenever it asks for it."""
        effects: list[Any] = []
        while (due := self.machine.deadline()) is not None and due <= until:
            effects += self.wake(due)
        return effects

    def _kept(self, effects: list[Any]) -> list[Any]:
        for effect in effects:
            if (tag := getattr(effect, "tag", None)) is not None:
                self.tags[type(effect)] = tag
        return effects


def begun() -> Script:
    script = Script()
    script.take(ev.Begin())
    return script


def registering() -> Script:
    script = begun()
    script.take(ev.Connected(script.tags[ev.Connect], "h1:5000"))
    return script


def waiting(*missing: int) -> Script:
    script = registering()
    script.hear(HeartbeatAck(0, (), (), ()))
    if missing:
        script.hear(HeartbeatAck(1, missing, (), ()))
    return script


def linked() -> Script:
    script = formed()
    script.take(ev.RingConnected(script.tags[ev.ConnectRing]))
    return script


def formed() -> Script:
    script = waiting()
    script.hear(FORMED)
    return script


def merging() -> Script:
    script = linked()
    script.take(ev.BackendStarted(script.tags[ev.StartBackend], DEVICES))
    return script


def committing() -> Script:
    script = merging()
    script.take(ev.Merged(script.tags[ev.Merge], TABLE, ROSTER))
    return script


def up() -> Script:
    script = committing()
    script.hear(Commit(()))
    return script


def leaving() -> Script:
    script = up()
    script.take(ev.LeaveRequested())
    return script


STAGES = [begun, registering, waiting, formed, merging, committing, up, leaving]


def sent(effects: list[Any]) -> list[ClientMessage]:
    return [effect.message for effect in effects if isinstance(effect, ev.Send)]


def of_kind(kind: type, effects: list[Any]) -> list[Any]:
    return [message for message in sent(effects) if isinstance(message, kind)]


def failure(effects: list[Any]) -> BaseException:
    """Return what the machine failed with, which must be the last that it asks for."""
    assert isinstance(effects[-1], ev.Failed)
    return effects[-1].error
