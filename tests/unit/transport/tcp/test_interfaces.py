"""The reasons for which a host gives no port."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from bringup.errors import ConfigurationError
from bringup.transport.attempts import TroubleKind
from bringup.transport.dial import trouble_of
from bringup.transport.tcp import interfaces
from bringup.transport.tcp.interfaces import bind_all


def test_a_taken_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"cannot listen on 127.0.0.1:{port}: the port is taken"):
            bind_all(["127.0.0.1"], port, "the ring listener")


def test_a_host_without_a_free_port_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def bind(*_: object) -> None:
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))

    monkeypatch.setattr(interfaces, "_bind", bind)
    with pytest.raises(ConfigurationError, match=r"the ring listener found no free port on 127.0.0.1: .*port_range"):
        bind_all(["127.0.0.1", "::1"], 0, "the ring listener")


def test_a_connection_for_which_there_is_no_port_says_so() -> None:
    trouble = trouble_of(OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL)))
    assert trouble.kind is TroubleKind.UNANSWERED
    assert "no port left for it (net.ipv4.ip_local_port_range)" in trouble.text
