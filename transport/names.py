"""Name resolution in daemon threads, with a cache that outlives the resolver."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
import time
from dataclasses import dataclass

from .addresses import Address
from .attempts import LOOKUP_TIMEOUT, NameRecord


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


def literal_hosts(address: Address) -> list[str]:
    """Return the IP addresses of a literal or of `localhost`; none for a name that needs a resolver."""
    if address.is_literal:
        return [address.host]
    return ["127.0.0.1", "::1"] if address.is_loopback else []


class UnresolvedError(OSError):
    """A name does not resolve, and never has."""


class Names:
    """The resolver of one client; used from any thread and event loop.

    A name is looked up when it is first needed, and again while what it leads to does not answer, ever more seldom.
    Whatever it was last known to lead to is used meanwhile, also where it does not resolve any more.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[str, NameRecord] = {}
        self._waiting: dict[str, list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]]] = {}

    async def lookup(self, address: Address) -> list[Endpoint]:
        """Return the endpoints of `address`, in the order of attempts.

        `localhost` and literal addresses need no resolver. Other names are looked up in daemon threads: a resolver that
        hangs must not hold up the end of the process, as the default executor's threads would.

        Raises:
            UnresolvedError: the name does not resolve.
        """
        if literal := literal_hosts(address):
            return [Endpoint(host, address.port) for host in literal]
        if (found := self._ask(address.host)) is not None:
            try:
                async with asyncio.timeout(LOOKUP_TIMEOUT):
                    await found
            except TimeoutError:
                raise UnresolvedError(_unresolved(address.host, f"no answer within {LOOKUP_TIMEOUT:g} s")) from None
        with self._lock:
            record = self._records[address.host]
            if not record.hosts:
                raise UnresolvedError(record.error)
            return [Endpoint(host, address.port) for host in record.hosts]

    def worked(self, address: Address, endpoint: Endpoint) -> None:
        """Note a successful connection to `address` at `endpoint`."""
        with self._lock:
            if (record := self._records.get(address.host)) is not None:
                record.worked(endpoint.host)

    def _ask(self, host: str) -> asyncio.Future[None] | None:
        """Start a look-up if one is due; returns a future if there is no earlier result."""
        with self._lock:
            record = self._records.setdefault(host, NameRecord(random.random()))  # noqa: S311 - it spreads load
            now = time.monotonic()
            if record.begin(now):
                try:
                    threading.Thread(target=self._look_up, args=(host,), daemon=True, name="bringup-dns").start()
                except RuntimeError as error:  # no thread is to be had just now
                    record.failed(_unresolved(host, str(error)))
            if record.hosts or not record.is_asking(now):
                return None
            loop = asyncio.get_running_loop()
            found: asyncio.Future[None] = loop.create_future()
            self._waiting.setdefault(host, []).append((loop, found))
            return found

    def _look_up(self, host: str) -> None:
        hosts: tuple[str, ...] = ()
        reason = "it has no address"
        try:
            infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            hosts = tuple(dict.fromkeys(str(info[4][0]) for info in infos))
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
        with self._lock:
            if hosts:
                self._records[host].found(hosts)
            else:
                self._records[host].failed(_unresolved(host, reason))
            waiting = self._waiting.pop(host, [])
        for loop, found in waiting:
            try:
                loop.call_soon_threadsafe(_wake, found)
            except RuntimeError:  # the loop was closed meanwhile: nobody waits any more
                continue


def _unresolved(host: str, reason: str) -> str:
    return f"the name {host!r} does not resolve: {reason}"


def _wake(found: asyncio.Future[None]) -> None:
    if not found.done():
        found.set_result(None)
