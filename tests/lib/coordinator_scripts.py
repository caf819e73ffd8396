"""A coordinator machine at each stage of its job, driven one event at a time. Session = 100 + client."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from bringup.runtime.machines.coordinator import events as ev
from bringup.runtime.machines.coordinator.config import CoordinatorConfig
from bringup.runtime.machines.coordinator.machine import CoordinatorMachine
from bringup.runtime.machines.coordinator.members import info_of
from bringup.runtime.machines.roster import Roster
from bringup.transport.wire.messages import (
    PROTOCOL_VERSION,
    ClientMessage,
    Heartbeat,
    Message,
    Ready,
    Register,
    Verdict,
)

N = 3


CONFIG = CoordinatorConfig(
    num_clients=N,
    job_name="worker",
    job_id="ab" * 16,
    heartbeat_interval=1.0,
    heartbeat_timeout=10.0,
    addresses=("h0:9000", "h1:9000", "h2:9000"),
)


ALL = tuple(range(100, 100 + N))


BEAT = Heartbeat(1, "ready", True, "")


def register(number: int, **other: Any) -> Register:
    base = Register(
        client_id=number,
        num_clients=N,
        job_name="worker",
        protocol_version=PROTOCOL_VERSION,
        package_version="0",
        incarnation=1000 + number,
        address=f"h{number}:9000",
        hostname=f"node-{number}",
        pid=number,
        link_address=f"h{number}:5000",
        device_type="SIM",
        heartbeat_interval=1.0,
    )
    return replace(base, **other)


def ready(digest: bytes = b"same", **other: Any) -> Ready:
    return replace(Ready(digest, (), ROSTER.digest), **other)


ROSTER = Roster.of(info_of(register(client_id)) for client_id in range(N))


def say(machine: CoordinatorMachine, client_id: int, message: ClientMessage, now: float = 0.0) -> list[Any]:
    return list(machine.handle(ev.MessageReceived(100 + client_id, message), now))


def end(machine: CoordinatorMachine, client_id: int, now: float = 0.0) -> list[Any]:
    return list(machine.handle(ev.SessionEnded(100 + client_id, "it broke"), now))


def answers(effects: list[Any], kind: type[Message]) -> list[Any]:
    """Return the messages of one kind among the effects."""
    return [effect.message for effect in effects if isinstance(effect, ev.SendTo) and isinstance(effect.message, kind)]


def verdict(effects: list[Any]) -> Verdict:
    """Return the one verdict among the effects."""
    (found,) = answers(effects, Verdict)
    assert isinstance(found, Verdict)
    return found


def is_closed(machine: CoordinatorMachine) -> bool:
    """Whether it has nothing to wait for: before its end it always listens to somebody."""
    return machine.deadline() is None


def judged(machine: CoordinatorMachine, until: float) -> list[Any]:
    """Wake the machine whenever it asks for it, while the clients beat; returns what it then says."""
    effects: list[Any] = []
    while (due := machine.deadline()) is not None and due <= until:
        effects += machine.wake(due)
    return effects


def machine_with(*clients: int) -> CoordinatorMachine:
    machine = CoordinatorMachine(CONFIG)
    for client_id in clients:
        say(machine, client_id, register(client_id))
    return machine


def running() -> CoordinatorMachine:
    machine = machine_with(*range(N))
    for client_id in range(N):
        say(machine, client_id, ready())
    return machine


def listen(machine: CoordinatorMachine, until: int, *, silent: int) -> list[Any]:
    """Send a heartbeat of all but one client every second; returns the effects that fell due."""
    due: list[Any] = []
    for second in range(1, until + 1):
        due += machine.wake(float(second))
        for client_id in set(range(N)) - {silent}:
            say(machine, client_id, BEAT, float(second))
    return due


def resume(machine: CoordinatorMachine, client_id: int, now: float) -> list[Any]:
    return list(machine.handle(ev.SessionResumed(100 + client_id), now))
