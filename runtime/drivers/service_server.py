"""Serves the coordination services on client 0: links, channels and timers round one machine."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import get_args

from ...errors import ConfigurationError
from ...transport.ports import Frame, LinkIdentity, ServiceLink
from ...transport.wire.framing import decode, encode_parts
from ...transport.wire.services import (
    ChannelOpened,
    CloseChannel,
    EndChannel,
    MessagesReceived,
    OpenChannel,
    Refusal,
    ServiceMessage,
    ServiceReply,
    ServiceRequest,
)
from ..machines.service_machine import Services
from .channel import Channel
from .crash import OnCrash, let_crash

_log = logging.getLogger("bringup")

_REQUESTS = frozenset(get_args(ServiceRequest))


class ServiceServer:
    """Used on one event loop, the runtime's. Requests are handled as they come, without a task each.

    What a machine or a handler raises unexpectedly ends this client, and so the job: who waits for a reply hears that.

    Args:
        machine: decides.
        is_member: whether somebody is a client of this job.
        clock: the time, monotonic, in seconds.

    Attributes:
        on_crash: told what was raised; who runs this sets it.
    """

    def __init__(
        self, machine: Services, is_member: Callable[[LinkIdentity], bool], clock: Callable[[], float]
    ) -> None:
        self.on_crash: OnCrash = let_crash
        self._machine = machine
        self._is_member = is_member
        self._clock = clock
        self._numbers = itertools.count(1)
        self._replies: dict[int, Callable[[ServiceReply], None]] = {}
        self._channels: dict[tuple[int, int, int], _ServedChannel] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._has_room_of: dict[int, Callable[[], bool]] = {}
        self._is_at_work = False

    def welcome(self, link: ServiceLink, sender: LinkIdentity) -> _Visitor:
        """See `ports.ServiceWelcome`."""
        return _Visitor(self, link, sender)

    def open_session(self, reply: Callable[[ServiceReply], None]) -> int:
        """Begin a session whose replies go to a function; returns its number."""
        number = next(self._numbers)
        self._replies[number] = reply
        return number

    def handle(self, session: int, client_id: int, request: ServiceRequest) -> None:
        """Take in one request of a session."""
        try:
            self._wake()
            self._tell(self._machine.handle(session, client_id, request, self._clock()))
            self._arm()
            self.go_on()
        except Exception as error:  # noqa: BLE001 - the client has sent it, and would wait for ever
            self.on_crash(error)

    def go_on(self) -> None:
        """See to it that what takes long goes on, by turns with whatever else this loop serves."""
        if not self._is_at_work and self._machine.has_work(self._has_room):
            self._is_at_work = True
            asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        self._is_at_work = False
        try:
            self._tell(self._machine.work(self._has_room))
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
            self._tell(self._machine.close_session(session, self._clock()))
        except Exception as error:  # noqa: BLE001 - others may wait for what it held
            self.on_crash(error)

    def leave(self, client_id: int) -> None:
        """Take in that a client leaves the job."""
        try:
            self._tell(self._machine.leave(client_id, self._clock()))
        except Exception as error:  # noqa: BLE001 - others may wait for the leaver
            self.on_crash(error)

    def close(self) -> None:
        """Serve nobody any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for channel in self._channels.values():
            if channel.link is not None:
                channel.link.close()
        self._channels.clear()
        self._replies.clear()

    def channel_of(self, sender: LinkIdentity, opening: OpenChannel) -> _ServedChannel:
        """Return the channel that somebody opens or carries on.

        Raises:
            ValueError: that is not for them to do.
        """
        if not self._is_member(sender):
            raise ValueError("it is no client of this job")
        key = (sender.client_id, sender.incarnation, opening.channel)
        channel = self._channels.get(key)
        if channel is None:
            if opening.received > 0:
                raise ValueError("it carries on a channel that is not known here")
            channel = self._channels[key] = _ServedChannel(key)
            channel.session = self.open_session(channel.send)
            self._has_room_of[channel.session] = channel.has_room
        return channel

    def end_channel(self, sender: LinkIdentity, number: int) -> None:
        """End a channel of a client that it cannot close itself, as the event loop that used it is gone."""
        channel = self._channels.get((sender.client_id, sender.incarnation, number))
        if channel is not None:
            if channel.link is not None:
                channel.link.close()
            self.forget(channel)

    def forget(self, channel: _ServedChannel) -> None:
        """End a channel that its client has closed."""
        self.close_session(channel.session)
        self._channels.pop(channel.key, None)

    def _tell(self, replies: list[tuple[int, ServiceReply]]) -> None:
        for session, reply in replies:
            if (tell := self._replies.get(session)) is None:
                continue
            try:
                tell(reply)
            except ConfigurationError as error:  # it is too large for any frame
                tell(Refusal(reply.ticket, ConfigurationError.__name__, str(error)))

    def _arm(self) -> None:
        """See to it that there is a timer for the machine's deadline; one that is too early is armed again."""
        due = self._machine.deadline()
        if due is None:
            return
        if self._timer is None or due < self._timer_due:
            if self._timer is not None:
                self._timer.cancel()
            # The handle need not know when: uvloop makes one without, where that is at once.
            self._timer_due = due
            self._timer = asyncio.get_running_loop().call_later(max(due - self._clock(), 0.0), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        try:
            self._wake()
            self._arm()
        except Exception as error:  # noqa: BLE001 - a loop only logs what its timers raise
            self.on_crash(error)

    def _wake(self) -> None:
        now = self._clock()
        due = self._machine.deadline()
        if due is not None and due <= now:
            self._tell(self._machine.wake(now))


class _ServedChannel(Channel):
    """A channel of one client, seen from the server."""

    def __init__(self, key: tuple[int, int, int]) -> None:
        super().__init__()
        self.key = key
        self.client_id = key[0]
        self.session = 0


class _Visitor:
    """Takes what comes over one link: its first message says whose channel it carries."""

    def __init__(self, server: ServiceServer, link: ServiceLink, sender: LinkIdentity) -> None:
        self._server = server
        self._link = link
        self._sender = sender
        self._channel: _ServedChannel | None = None

    def received(self, frame: Frame) -> None:
        """See `ServiceReceiver.received`."""
        try:
            message = decode(frame)
            if self._channel is None:
                self._open(message)
            else:
                self._take(self._channel, message, len(frame))
        except ValueError as error:
            _log.warning("client %d broke the protocol of the services: %s", self._sender.client_id, error)
            self.lost(str(error))
            self._link.close()
        except Exception as error:  # noqa: BLE001 - a network would drop the link, and the client dial again and again
            self._server.on_crash(error)

    def lost(self, reason: str) -> None:
        """See `ServiceReceiver.lost`. The channel waits for its client to carry it on."""
        if self._channel is not None and self._channel.link is self._link:
            self._channel.link = None

    def _take(self, channel: _ServedChannel, message: ServiceMessage, size: int) -> None:
        if isinstance(message, EndChannel):
            channel.note_received(size)
            self._server.end_channel(self._sender, message.channel)
        elif type(message) in _REQUESTS:
            channel.note_received(size)
            self._server.handle(channel.session, channel.client_id, message)  # type: ignore[arg-type]
        elif isinstance(message, MessagesReceived):
            channel.acknowledged(message.received)
            self._server.go_on()
        elif isinstance(message, CloseChannel):
            self._server.forget(channel)
            self._link.close()
        else:
            raise ValueError(f"it sent a {type(message).__name__}, which is not for clients to send")

    def _open(self, message: ServiceMessage) -> None:
        if not isinstance(message, OpenChannel):
            raise ValueError(f"it began with a {type(message).__name__}")
        channel = self._server.channel_of(self._sender, message)
        if channel.link is not None:
            channel.link.close()
        self._link.send(encode_parts(ChannelOpened(channel.received)))
        channel.attach(self._link, message.received)
        self._channel = channel
