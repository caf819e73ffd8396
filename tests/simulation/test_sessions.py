"""Sessions over connections that break all the time: both planes, and bugs planted in the machine that ships.

Every message is checked as it is delivered: once, and in order; every answer of the store by the history of all calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bringup.runtime.machines.session import limits
from bringup.runtime.machines.session.effects import Effects, Finished
from bringup.runtime.machines.session.machine import SessionMachine, SessionSide
from bringup.runtime.machines.session.resend_buffer import ResendBuffer
from bringup.runtime.machines.session.table import AcceptedSession, SessionTable
from bringup.transport.attempts import TroubleKind
from bringup.transport.wire.services import ListLive
from bringup.transport.wire.session_messages import EndSession, OpenSession

from . import services
from .faults import BreakConnection, CutOff, TroubleDials
from .program import Program
from .scenario import Step, Traffic
from .world import World

N = 6
SEEDS = range(20)
VICTIM = 3
Planting = Callable[[pytest.MonkeyPatch], None]


def run_over_breaking_connections(seed: int) -> World:
    """Run a job whose clients call the services, while connections of all planes break, hang and are slow to open."""
    with World(seed, N) as world:
        rng = world.rng
        calls = dict.fromkeys(range(N), 25)
        watches: dict[int, tuple[str, ...]] = dict.fromkeys(range(N), ("",))
        step = Step("all have called", 4.0, None)
        program = Program((step,), 4.0, traffic=Traffic(calls=calls, watches=watches, pause=0.1))
        world.prepare = program.prepare
        world.start_all(within=0.1)
        for _ in range(60):
            clients = tuple(rng.sample(range(1, N), rng.randint(1, 3)))
            world.clock.at(rng.uniform(0.1, 6.0), world.strike, BreakConnection(clients, 1, 0.0))
        for _ in range(6):
            trouble = rng.choice([TroubleKind.BROKEN, "slowly", "swallowed"])
            world.clock.at(rng.uniform(0.1, 4.0), world.strike, TroubleDials((rng.randrange(1, N),), (trouble,)))
        world.clock.at(rng.uniform(0.5, 3.0), world.strike, CutOff(VICTIM, rng.choice(["to it", "from it"]), 2.0))
        world.run_until(lambda: not world.running, 120.0)
        for process in world.processes:
            assert process.failed is None, f"{process.name} fails: {process.failed}"
            assert process.left is not None
            assert not process.left[1].missing
        world.jobs[0].store.check()
    return world


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_doubled_or_reordered_and_nobody_is_blamed(seed: int) -> None:
    run_over_breaking_connections(seed)


def end_over_a_breaking_connection(seed: int) -> None:
    """A client ends its session with the services, and the connection breaks that was to carry the end."""
    with World(seed, N) as world:
        world.bring_up()
        served, victim = world.jobs[0].services, world.processes[VICTIM]
        answers: list[Any] = []
        served.ask(victim, ListLive, answers.append)
        world.run_until(lambda: bool(answers), world.clock.now + 1.0)
        link = served.link_of(victim)
        link.finish()
        world.clock.after(world.rng.uniform(0.0, 0.0002), world.strike, BreakConnection((VICTIM,), 1, 0.0))
        world.run(until=world.clock.now + limits.END_TIMEOUT)
        assert link.end is not None, "the session of a client has not ended"
        sessions = served.sessions
        assert sessions.table.get(sessions.number_of[victim]) is None, "a session has ended, and nobody has heard of it"


@pytest.mark.parametrize("seed", SEEDS)
def test_an_end_is_heard_whatever_connection_breaks(seed: int) -> None:
    end_over_a_breaking_connection(seed)


def keep_too_much(seed: int) -> None:
    """A client calls the services, again and again, and cannot reach them."""
    with pytest.MonkeyPatch.context() as patch, World(seed, N) as world:
        patch.setattr(services, "SERVICES_KEPT_MAX", 40)
        world.bring_up()
        served, victim = world.jobs[0].services, world.processes[VICTIM]
        world.strike(CutOff(VICTIM, "both ways", 3.0))
        for _ in range(100):
            victim.later(world.rng.uniform(0.0, 2.0), served.ask, victim, ListLive, lambda reply: None)
        world.run(until=world.clock.now + 2.5)
        assert victim.failed is not None, "a session that keeps too much goes on"
        assert "40 messages were not acknowledged" in str(victim.failed[1])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_session_that_keeps_too_much_is_given_up(seed: int) -> None:
    keep_too_much(seed)


# Bugs.


def forget_one_message_at_a_resume(patch: pytest.MonkeyPatch) -> None:
    shipped = ResendBuffer.rewind

    def rewind(self: Any, received: int) -> None:
        shipped(self, received)
        self._num_sent = min(1, len(self._kept))

    patch.setattr(ResendBuffer, "rewind", rewind)


def repeat_a_message_after_a_resume(patch: pytest.MonkeyPatch) -> None:
    """The last of those that the other side has received is sent again."""
    shipped = AcceptedSession.take_over

    def take_over(self: Any, connection: int, opening: OpenSession) -> int:
        buffer = self._buffer
        received = max(buffer._num_acknowledged, opening.received - 1)
        return shipped(self, connection, OpenSession(opening.session, received))

    patch.setattr(AcceptedSession, "take_over", take_over)


def let_two_connections_take_over(patch: pytest.MonkeyPatch) -> None:
    """Messages over the previous connection are taken in, too."""
    shipped = SessionTable.open

    def open_session(self: Any, connection: int, key: Any, opening: OpenSession) -> Effects:
        before = None if (session := self._of_key.get(key)) is None else session.carrier
        effects = shipped(self, connection, key, opening)
        if before:
            self._carried[before] = session
            return effects[1:]
        return effects

    def take(self: Any, connection: int, size: int = 0) -> bool:
        self.received += 1
        return True

    patch.setattr(SessionTable, "open", open_session)
    patch.setattr(AcceptedSession, "take", take, raising=False)


def keep_without_a_bound(patch: pytest.MonkeyPatch) -> None:
    shipped = ResendBuffer.append_sent
    patch.setattr(SessionSide, "_overflow", lambda self: "")
    patch.setattr(ResendBuffer, "append_sent", lambda self, message, kept_max: shipped(self, message, 10**9))


def lose_an_end_with_its_connection(patch: pytest.MonkeyPatch) -> None:
    """A session that is to end, and whose connection breaks, has ended."""
    shipped = SessionMachine.lost

    def lost(self: Any, connection: int, reason: str, now: float) -> Effects:
        if self._finish_due is not None and connection == self.carrier:
            return self._close(Finished(reason))  # type: ignore[no-any-return]
        return shipped(self, connection, reason, now)

    patch.setattr(SessionMachine, "lost", lost)


def do_not_hear_an_end(patch: pytest.MonkeyPatch) -> None:
    shipped = SessionTable.receive

    def receive(self: Any, connection: int, message: Any) -> Effects:
        return () if isinstance(message, EndSession) else shipped(self, connection, message)

    patch.setattr(SessionTable, "receive", receive)


PLANTED: dict[Planting, Callable[[int], object]] = {
    forget_one_message_at_a_resume: run_over_breaking_connections,
    repeat_a_message_after_a_resume: run_over_breaking_connections,
    let_two_connections_take_over: run_over_breaking_connections,
    keep_without_a_bound: keep_too_much,
    lose_an_end_with_its_connection: end_over_a_breaking_connection,
    do_not_hear_an_end: end_over_a_breaking_connection,
}


@pytest.mark.parametrize(("plant", "run"), PLANTED.items(), ids=[plant.__name__ for plant in PLANTED])
def test_a_planted_bug_is_found(plant: Planting, run: Callable[[int], object], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in SEEDS:
        try:
            run(seed)
        except AssertionError:
            return
    pytest.fail(f"{plant.__name__} is not found within {len(SEEDS)} seeds")
