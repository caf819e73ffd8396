"""Serves the coordination services on client 0: requests, replies and timers round one machine."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from ...errors import ConfigurationError
from ...transport.ports import LinkIdentity, ServiceLink, ServiceReceiver
from ...transport.wire.services import Refusal, ServiceReply, ServiceRequest
from ..machines.service_machine import ServiceMachine
from .alarm import Alarm
from .crash import OnCrash, let_crash
from .service_sessions import RemoteSessions


class ServiceServer:
    """Used on one event loop, the runtime's. Requests are handled as they come, without a task each.

    What a machine or a handler raises unexpectedly ends this client, and so the job: who waits for a reply hears that.

    Args:
        machine: decides.
        is_member: whether somebody is a client of this job.
        clock: the time, monotonic, in seconds.

    Attributes:
        on_crash: told what was raised; who runs this sets it.
        machine: see above.
    """

    def __init__(
        self, machine: ServiceMachine, is_member: Callable[[LinkIdentity], bool], clock: Callable[[], float]
    ) -> None:
        self.on_crash: OnCrash = let_crash
        self.machine = machine
        self._clock = clock
        self._numbers = itertools.count(1)
        self._replies: dict[int, Callable[[ServiceReply], None]] = {}
        self._alarm = Alarm(self._on_alarm, clock, self._crash)
        self._remote = RemoteSessions(self, is_member, clock, self._crash)
        self._has_room_of: dict[int, Callable[[], bool]] = {}
        self._is_at_work = False

    def welcome(self, link: ServiceLink, sender: LinkIdentity) -> ServiceReceiver:
        """See `ports.ServiceWelcome`."""
        return self._remote.welcome(link, sender)

    @property
    def num_remote_sessions(self) -> int:
        """The number of sessions of other processes."""
        return len(self._remote)

    def open_session(self, reply: Callable[[ServiceReply], None], has_room: Callable[[], bool] | None = None) -> int:
        """Begin a session whose replies go to a function; returns its number.

        Args:
            reply: where they go.
            has_room: says whether a long answer may go on.
        """
        number = next(self._numbers)
        self._replies[number] = reply
        if has_room is not None:
            self._has_room_of[number] = has_room
        return number

    def handle(self, session: int, client_id: int, request: ServiceRequest) -> None:
        """Take in one request of a session."""
        try:
            self._wake()
            self._tell(self.machine.handle(session, client_id, request, self._clock()))
            if (due := self.machine.deadline()) is not None:
                self._alarm.set(due)
            self.go_on()
        except Exception as error:  # noqa: BLE001 - the client has sent it, and would wait for ever
            self.on_crash(error)

    def go_on(self) -> None:
        """See to it that what takes long goes on, by turns with whatever else this loop serves."""
        if not self._is_at_work and self.machine.has_work(self._has_room):
            self._is_at_work = True
            asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        self._is_at_work = False
        try:
            self._tell(self.machine.work(self._has_room))
            self.go_on()
        except Exception as error:  # noqa: BLE001 - a loop only logs what its callbacks raise
            self.on_crash(error)

    def _has_room(self, session: int) -> bool:
        has_room = self._has_room_of.get(session)
        return has_room is None or has_room()

    def close_session(self, session: int) -> None:
        """End a session."""
        self._replies.pop(session, None)
        self._has_room_of.pop(session, None)
        try:
            self._tell(self.machine.close_session(session, self._clock()))
        except Exception as error:  # noqa: BLE001 - others may wait for what it held
            self.on_crash(error)

    def leave(self, client_id: int) -> None:
        """Take in that a client leaves the job."""
        try:
            self._tell(self.machine.leave(client_id, self._clock()))
        except Exception as error:  # noqa: BLE001 - others may wait for the leaver
            self.on_crash(error)

    def close(self) -> None:
        """Serve nobody any more."""
        self._alarm.cancel()
        self._remote.close()
        self._replies.clear()

    def _tell(self, replies: list[tuple[int, ServiceReply]]) -> None:
        for session, reply in replies:
            if (tell := self._replies.get(session)) is None:
                continue
            try:
                tell(reply)
            except ConfigurationError as error:  # it is too large for any frame
                tell(Refusal(reply.ticket, ConfigurationError.__name__, str(error)))

    def _on_alarm(self) -> None:
        self._wake()
        self._alarm.set(self.machine.deadline())

    def _crash(self, error: Exception) -> None:
        self.on_crash(error)

    def _wake(self) -> None:
        now = self._clock()
        due = self.machine.deadline()
        if due is not None and due <= now:
            self._tell(self.machine.wake(now))
