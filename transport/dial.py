"""Reaching an address: name look-up, TCP connect, and patience that costs nothing."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from .addresses import Address
from .forks import SOCKETS

__all__ = ["Endpoint", "connect_patiently", "describe", "lookup", "open_socket", "retry_delay"]

_RETRY_DELAY_MIN = 0.004
_RETRY_DELAY_MAX = 0.25
_RETRY_DELAY_RATIO = 0.1
_CONNECT_TIMEOUT = 3.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address as the kernel takes it: a literal IP and a port."""

    host: str
    port: int

    @property
    def family(self) -> socket.AddressFamily:
        """IPv4 or IPv6."""
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def retry_delay(elapsed: float) -> float:
    """Return how long to wait before the next attempt after `elapsed` seconds of attempts.

    In proportion to the time already spent, so that the wait for a coordinator that starts late is overshot by a
    tenth at most, whatever the start order, and an hour of waiting costs no more than four attempts a second.
    """
    return min(max(elapsed * _RETRY_DELAY_RATIO, _RETRY_DELAY_MIN), _RETRY_DELAY_MAX)


async def lookup(address: Address) -> list[Endpoint]:
    """Return the endpoints of `address`, in the order in which to try them.

    `localhost` and literal addresses need no resolver. Other names are looked up in a daemon thread of their own: a
    resolver that hangs must not hold up the end of the process, as the default executor's threads would.

    Raises:
        OSError: the name does not resolve.
    """
    if address.host == "localhost":
        return [Endpoint("127.0.0.1", address.port), Endpoint("::1", address.port)]
    try:
        return [Endpoint(str(ipaddress.ip_address(address.host)), address.port)]
    except ValueError:
        pass
    loop = asyncio.get_running_loop()
    found: asyncio.Future[list[Endpoint]] = loop.create_future()
    thread = threading.Thread(target=_lookup_in_thread, args=(address, loop, found), daemon=True, name="bringup-dns")
    thread.start()
    return await found


def _lookup_in_thread(address: Address, loop: asyncio.AbstractEventLoop, found: asyncio.Future[list[Endpoint]]) -> None:
    outcome: list[Endpoint] | OSError
    try:
        infos = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        outcome = list(dict.fromkeys(Endpoint(str(info[4][0]), address.port) for info in infos))
    except OSError as error:
        outcome = OSError(f"the name {address.host!r} does not resolve: {error.strerror or error}")
    try:
        loop.call_soon_threadsafe(_deliver, found, outcome)
    except RuntimeError:  # the loop was closed meanwhile: nobody waits any more
        return


def _deliver(found: asyncio.Future[list[Endpoint]], outcome: list[Endpoint] | OSError) -> None:
    if found.done():
        return
    if isinstance(outcome, OSError):
        found.set_exception(outcome)
    else:
        found.set_result(outcome)


async def connect_patiently(
    address: Address, report: Callable[[str], None], *, give_up_when_refused: bool = False
) -> tuple[Endpoint, str]:
    """Try until something accepts TCP connections on `address`.

    Args:
        address: where.
        report: told why not yet, whenever the reason changes.
        give_up_when_refused: whether to raise where nothing listens there.

    Returns:
        The endpoint that accepted, and the local IP address it was reached from.

    Raises:
        ConnectionRefusedError: as asked for.
    """
    started = time.monotonic()
    reason = ""
    while True:
        try:
            endpoints = await lookup(address)
            return await _connect_any(endpoints)
        except OSError as error:
            if give_up_when_refused and isinstance(error, ConnectionRefusedError):
                raise
            if reason != (reason := describe(error)):
                report(reason)
        await asyncio.sleep(retry_delay(time.monotonic() - started))


async def _connect_any(endpoints: list[Endpoint]) -> tuple[Endpoint, str]:
    failure: OSError | None = None
    for endpoint in endpoints:
        try:
            return endpoint, await _connect_once(endpoint)
        except OSError as error:
            # The first family's answer is the telling one: hosts without IPv6 refuse ::1 in their own way.
            failure = failure or error
    raise failure or OSError("the name resolves to no address")


async def _connect_once(endpoint: Endpoint) -> str:
    sock = await open_socket(endpoint)
    with sock:
        return str(sock.getsockname()[0])


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
        async with asyncio.timeout(_CONNECT_TIMEOUT):
            await _connected(sock, sock.connect_ex((endpoint.host, endpoint.port)))
    except BaseException:
        sock.close()
        raise
    return sock


async def _connected(sock: socket.socket, status: int) -> None:
    if status == errno.EINPROGRESS:
        loop = asyncio.get_running_loop()
        writable: asyncio.Future[None] = loop.create_future()
        loop.add_writer(sock, lambda: writable.done() or writable.set_result(None))  # type: ignore[func-returns-value]
        try:
            await writable
        finally:
            loop.remove_writer(sock)
        status = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if status:
        raise OSError(status, os.strerror(status))


def describe(error: OSError) -> str:
    """Return an operating system's error as a person says it."""
    if isinstance(error, TimeoutError) and error.errno is None:
        return f"no answer within {_CONNECT_TIMEOUT:g} s"
    if error.errno == errno.ECONNREFUSED:
        return "connection refused: nothing listens there"
    return os.strerror(error.errno) if error.errno else str(error)
