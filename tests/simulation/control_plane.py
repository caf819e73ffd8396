"""The sessions of simulated clients with the coordinator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bringup.runtime.drivers.coordinator import TOLD_AT_ONCE
from bringup.runtime.machines.coordinator import events as coordinator_events
from bringup.runtime.machines.peer import events as ev
from bringup.runtime.machines.peer import heartbeats
from bringup.runtime.machines.session.effects import (
    Effect,
    Ended,
    Flushed,
    GivenUp,
    Gone,
    Lost,
    Opened,
    Resumed,
    TableClosed,
)
from bringup.runtime.machines.session.limits import CONTROL_KEPT_MAX, Ending
from bringup.transport.wire.messages import Leave

from . import costs
from .session import AcceptedSessions, DialledSession, Letter

if TYPE_CHECKING:
    from .process import Process


def _posted(sender: Process, number: int, message: Any) -> Letter:
    letter, seconds = sender.world.wire.mail.encode(message)
    sender.work(seconds)
    return Letter(number, letter.message, letter.size)


class CoordinatorLink(DialledSession):
    """A client's."""

    def __init__(self, process: Process) -> None:
        super().__init__(process, CONTROL_KEPT_MAX, begins_anew=True)
        self._tag: ev.Tag = (0, 0)

    def connect(self, tag: ev.Tag) -> None:
        """Begin a session."""
        self._tag = tag
        self.begin()

    def redial(self, patience: float | None) -> None:
        """Dial although a connection stands."""
        self.perform(self.machine.redial() if patience is None else self.machine.redial(patience))

    def send(self, message: Any) -> None:
        """Bring a message to the coordinator."""
        assert self.machine.number, f"{self.process.name} sends {message} without a session"
        super().send(message)

    def dial(self, number: int, *, is_expected: bool) -> None:
        """See `DialledSession`."""
        self.process.world.wire.dial_coordinator(self, number, is_expected=is_expected)

    def posted(self, number: int, message: Any) -> Letter:
        """See `DialledSession`."""
        return _posted(self.process, number, message)

    def revised(self, message: Any) -> Any:
        """See `DialledSession`."""
        return heartbeats.revised(message)

    def deliver(self, letter: Letter) -> None:
        """See `DialledSession`."""
        process = self.process
        process.work(costs.seconds_to_read(letter.size))
        process.heard_host_at = self.now
        process.tell_peer(ev.Received(letter.message))

    def tell(self, effect: Effect) -> None:
        """See `DialledSession`."""
        process = self.process
        match effect:
            case Opened():
                process.tell_peer(ev.Connected(self._tag, process.link_address))
            case Resumed():
                process.tell_peer(ev.Reconnected())
            case Lost(reason):
                process.tell_peer(ev.SessionLost(reason))
            case Gone(reason):
                process.tell_peer(ev.CoordinatorGone(reason))
            case GivenUp(reason):
                process.tell_peer(ev.SessionGivenUp(reason))


class CoordinatorSessions(AcceptedSessions):
    """The coordinator's."""

    def __init__(self, process: Process) -> None:
        super().__init__(process, CONTROL_KEPT_MAX, process.config.heartbeat_timeout)
        self._on_flushed: Callable[[], None] = lambda: None
        self._on_closed: Callable[[], None] = lambda: None

    def send_to(self, sessions: tuple[int, ...], message: Any) -> None:
        """Bring a message to clients, in turns: what has come meanwhile is taken in between."""
        for session in sessions:
            self.put(session, message)
        self._go_on_with(sessions)

    def _go_on_with(self, sessions: tuple[int, ...]) -> None:
        for session in sessions[:TOLD_AT_ONCE]:
            self.go_on(session)
        if rest := sessions[TOLD_AT_ONCE:]:
            self.process.later(0.0, self._go_on_with, rest)

    def finish(self, session: int) -> None:
        """End a session after what was said in it."""
        self.perform(self.table.finish(session, self.now))
        if (accepted := self.table.get(session)) is not None:
            self.pump(accepted.carrier)

    def close(self, ending: Ending, on_flushed: Callable[[], None], on_closed: Callable[[], None]) -> None:
        """Tell all clients of the end."""
        self._on_flushed, self._on_closed = on_flushed, on_closed
        self.perform(self.table.close(ending, self.now))
        self.pump_all()

    def stay(self, *, is_needed: bool) -> None:
        """Stay for those that are away, where that is needed."""
        self.perform(self.table.stay(self.now, is_needed=is_needed))

    def all_told(self) -> None:
        """Stay no longer."""
        self.perform(self.table.all_told())

    def posted(self, number: int, message: Any) -> Letter:
        """See `AcceptedSessions`."""
        return _posted(self.process, number, message)

    def deliver(self, client: Process, session: int, letter: Letter) -> None:
        """See `AcceptedSessions`."""
        self.process.work(costs.seconds_to_read(letter.size))
        client.heard_at = self.now
        if type(letter.message) is Leave:
            client.is_let_go = True
        self.process.tell_coordinator(coordinator_events.MessageReceived(session, letter.message))

    def tell(self, effect: Effect) -> None:
        """See `AcceptedSessions`."""
        match effect:
            case Resumed(session):
                self.clients[session].heard_at = self.now
                self.process.tell_coordinator(coordinator_events.SessionResumed(session))
            case Ended(session, reason, is_settled):
                self.process.tell_coordinator(coordinator_events.SessionEnded(session, reason, is_settled))
            case Flushed():
                self._on_flushed()
            case TableClosed():
                self._on_closed()
