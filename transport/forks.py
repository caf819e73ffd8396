"""Release of a job's sockets in forked children, where they would outlive the client.

A child that keeps them, as a worker of torch's DataLoader or of a multiprocessing pool does, holds the ports of a dead
client, and its connections do not end: the others then wait for `heartbeat_timeout` instead of hearing of the death.
gRPC does not say which descriptors are its own, so a job's sockets are known by the ports that were bound for it and
the endpoints that it has dialled.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from ..errors import NotInitializedError

_OPEN_FILES = Path("/proc/self/fd")


class JobSockets:
    """The ports and endpoints of this process's job: one set for the process, as descriptors are."""

    def __init__(self) -> None:
        self._ports: frozenset[int] = frozenset()
        self._endpoints: frozenset[tuple[str, int]] = frozenset()
        self._used_in: int | None = None

    def bound(self, port: int) -> None:
        """Note that sockets on this local port belong to the job."""
        if port not in self._ports:
            self._ports |= {port}

    def dialled(self, host: str, port: int) -> None:
        """Note that connections to this literal IP address and port belong to the job."""
        if (host, port) not in self._endpoints:
            self._endpoints |= {(host, port)}

    def clear(self) -> None:
        """Note that the job is over."""
        self._ports, self._endpoints = frozenset(), frozenset()

    def use_network(self) -> None:
        """Note that this process uses gRPC, which does not work in its forked children.

        Raises:
            NotInitializedError: it was forked from one that used gRPC.
        """
        if self._used_in not in (None, os.getpid()):
            raise NotInitializedError(
                f"process {os.getpid()} was forked from process {self._used_in}, which was a client of a job, and gRPC "
                "does not work in such a child: start clients with multiprocessing's 'spawn' method or subprocess"
            )
        self._used_in = os.getpid()

    def let_go(self) -> None:
        """Close the sockets in a forked child.

        Each keeps its number, as a handle on nothing: objects that were copied with the parent's memory may close it.
        """
        if not (self._ports or self._endpoints):
            return
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            for descriptor in _open_files():
                if self._is_of_job(descriptor):
                    os.dup2(nothing, descriptor, inheritable=False)
        finally:
            os.close(nothing)
        self.clear()

    def _is_of_job(self, descriptor: int) -> bool:
        try:
            sock = socket.socket(fileno=descriptor)
        except OSError:  # it is no socket, or is closed by now
            return False
        try:
            if sock.family not in (socket.AF_INET, socket.AF_INET6):
                return False
            if sock.getsockname()[1] in self._ports:
                return True
            host, port = sock.getpeername()[:2]
            # gRPC connects to IPv4 addresses with sockets of IPv6.
            return (host.removeprefix("::ffff:"), port) in self._endpoints
        except OSError:  # it listens, or is not connected yet
            return False
        finally:
            sock.detach()


def _open_files() -> list[int]:
    try:
        return [int(entry.name) for entry in _OPEN_FILES.iterdir()]
    except OSError:  # there is no /proc
        return []


SOCKETS = JobSockets()
