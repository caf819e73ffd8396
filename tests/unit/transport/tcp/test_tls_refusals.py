"""The refusal of a link under TLS, as the dialling side sees it."""

from __future__ import annotations

import pytest

from bringup.transport.ports import ConnectionClosedError
from bringup.transport.tcp.link import TcpLink
from bringup.transport.tcp.tls import TlsTransport

from .test_tls_states import OTHER, Wire, terms


async def test_a_refusal_is_known_before_the_loop_tells_of_the_end() -> None:
    link = TcpLink()
    transport = TlsTransport(terms(OTHER, 1, is_server=False), link, is_server=False)
    transport.connection_made(Wire())
    answer = b"HTTP/1.1 400 Bad Request"
    transport.get_buffer(-1)[: len(answer)] = answer
    transport.buffer_updated(len(answer))
    assert link.refusal.startswith("TLS failed: ")
    with pytest.raises(ConnectionClosedError, match="TLS failed: "):
        await link.send(b"hello")
