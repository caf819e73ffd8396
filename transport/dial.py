"""TCP connections to an address: its endpoints in order, with retries."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from .addresses import Address
from .attempts import CONNECT_TIMEOUT, Attempts, Goal, Trouble, TroubleKind
from .forks import SOCKETS
from .names import Endpoint, Names, UnresolvedError
from .ports import ConnectionClosedError

T = TypeVar("T")

# This host has no address or route of that family: it never could reach anybody there.
_NO_WAY = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.ENETUNREACH)


_NO_PORT = "this host has no address to connect from, or no port left for it (net.ipv4.ip_local_port_range)"


class DialError(Exception):
    """An attempt to connect failed."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.text)
        self.trouble = trouble


async def reach(
    goal: Goal, attempt: Callable[[], Awaitable[T]], report: Callable[[Trouble], None], num_clients: int = 1
) -> T:
    """Repeat an attempt until it succeeds, or fails for good.

    Args:
        goal: what for.
        attempt: one attempt; raises a `DialError`, an `OSError` or a `ConnectionClosedError` where it fails.
        report: told why not yet, whenever that changes.
        num_clients: that make attempts at the same host.

    Raises:
        DialError: there is no use in further attempts.
    """
    attempts = Attempts(goal, time.monotonic(), num_clients, random.random())  # noqa: S311 - it spreads load
    last: Trouble | None = None
    while True:
        try:
            return await attempt()
        except (DialError, OSError, ConnectionClosedError) as error:
            trouble = trouble_of(error)
        delay = attempts.delay(trouble.kind, time.monotonic())
        if delay is None:
            raise DialError(trouble)
        if trouble != last:
            report(last := trouble)
        await asyncio.sleep(delay)


async def open_any(names: Names, address: Address) -> tuple[socket.socket, Endpoint]:
    """Return a socket connected to the first endpoint of `address` that accepts, and that endpoint.

    Raises:
        OSError: none does.
    """
    failures: list[OSError] = []
    for endpoint in await names.lookup(address):
        try:
            return await open_socket(endpoint), endpoint
        except OSError as error:
            failures.append(error)
    raise _telling(failures)


def _telling(failures: list[OSError]) -> OSError:
    """Return the failure of the whole attempt: an address refuses only if all its endpoints do."""
    possible = [failure for failure in failures if failure.errno not in _NO_WAY] or failures
    return next((failure for failure in possible if not isinstance(failure, ConnectionRefusedError)), possible[0])


async def open_socket(endpoint: Endpoint) -> socket.socket:
    """Return a socket connected to `endpoint`.

    Event loops resolve even literal addresses once more, uvloop in threads that stay until the process ends, so this
    asks the kernel itself.

    Raises:
        OSError: nothing accepts there, or it takes longer than a TCP connection should.
    """
    sock = socket.socket(endpoint.family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        SOCKETS.dialled(endpoint.host, endpoint.port)
        address = endpoint.host, endpoint.port
        status = sock.connect_ex(address)
        if status == errno.EINPROGRESS:
            # On loopback it is done by now.
            status = sock.connect_ex(address)
        if status in (errno.EALREADY, errno.EINPROGRESS):
            async with asyncio.timeout(CONNECT_TIMEOUT):
                status = await _connected(sock)
        if status not in (0, errno.EISCONN):
            raise OSError(status, os.strerror(status))
    except BaseException:
        sock.close()
        raise
    return sock


async def _connected(sock: socket.socket) -> int:
    """Wait for the end of a connect; returns its error number, 0 for none."""
    loop = asyncio.get_running_loop()
    writable: asyncio.Future[None] = loop.create_future()
    loop.add_writer(sock, lambda: writable.done() or writable.set_result(None))  # type: ignore[func-returns-value]
    try:
        await writable
    finally:
        loop.remove_writer(sock)
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def trouble_of(error: DialError | OSError | ConnectionClosedError) -> Trouble:
    """Return the trouble that an exception stands for."""
    match error:
        case DialError():
            return error.trouble
        case ConnectionClosedError():
            return Trouble(TroubleKind.BROKEN, str(error))
        case UnresolvedError():
            return Trouble(TroubleKind.UNRESOLVED, str(error))
        case TimeoutError() if error.errno is None:
            return Trouble(TroubleKind.UNANSWERED, f"no answer within {CONNECT_TIMEOUT:g} s")
        case ConnectionRefusedError():
            return Trouble(TroubleKind.REFUSED, "connection refused: nothing listens there")
        case ConnectionResetError() | BrokenPipeError():
            return Trouble(TroubleKind.BROKEN, _text(error))
        case OSError(errno=errno.EADDRNOTAVAIL):
            return Trouble(TroubleKind.UNANSWERED, _NO_PORT)
    return Trouble(TroubleKind.UNANSWERED, _text(error))


def _text(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)
