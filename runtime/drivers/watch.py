"""The watch of one client in a job with several groups: what neighbours tell each other over the ring's links."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ...transport.ports import LINK_MESSAGE_BYTES_MAX, Link
from ...transport.wire.control import decode, encode
from ...transport.wire.form import MalformedMessageError
from ...transport.wire.messages import Beat, WatchMessage
from ..machines.peer import events as ev


class WatchDriver:
    """Used on the peer's loop, without tasks: a wave that comes around costs each client some microseconds.

    Args:
        inbox: of the peer.
        spawn: runs a coroutine as long as the peer lives.
    """

    def __init__(
        self,
        inbox: asyncio.Queue[ev.PeerEvent | None],
        spawn: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]],
    ) -> None:
        self._inbox = inbox
        self._spawn = spawn
        self._incoming: Link | None = None

    def begin(self, incoming: Link, outgoing: Link) -> None:
        """Begin to receive messages of the right neighbour, with those that came already, and to send to the left."""
        self._incoming = incoming
        outgoing.receive_messages(self._receive)

    def send(self, message: WatchMessage) -> None:
        """Send a message to the left neighbour; of beats that it does not read in time, it gets the newest."""
        assert self._incoming is not None
        data = encode(message)
        # A longer report is left to client 0, which tells all clients itself.
        if len(data) <= LINK_MESSAGE_BYTES_MAX:
            self._incoming.post(data, is_latest=isinstance(message, Beat))

    def _receive(self, data: bytes | memoryview) -> None:
        message = decode(data)
        if not isinstance(message, WatchMessage):
            raise MalformedMessageError(f"a {type(message).__name__} is not for a neighbour to send")
        event = ev.Watched(message)
        try:
            self._inbox.put_nowait(event)
        except asyncio.QueueFull:
            # The next wave says what this one would have said, to a client that has caught up.
            if not isinstance(message, Beat):
                self._spawn(self._inbox.put(event))
