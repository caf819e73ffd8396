"""Fault points of a client process: signals at given points, a held GIL, few open files; see `testing.client`."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import threading
from contextlib import suppress
from typing import Any, cast

from ..runtime.client.compose import Parts, make_network
from ..runtime.configuration.plan import Plan
from ..runtime.machines.peer.config import PeerConfig
from ..runtime.machines.peer.events import PeerEvent
from ..runtime.machines.peer.machine import Effects, PeerMachine
from ..transport.ports import Link, Network


class FaultPoints:
    """Signals that this process sends to itself, once each, as its client reaches given points.

    Attributes:
        parts: what the client is to be composed of, so that its points are seen.
    """

    def __init__(self) -> None:
        self.parts = Parts(self._make_network, self._make_machine)
        self._at_phase: dict[str, str] = {}
        self._at_send: tuple[int, str] | None = None

    def signal_at_phase(self, phase: str, name: str) -> None:
        """Send the signal once the client is in a phase, before it acts on that."""
        self._at_phase[phase] = name

    def signal_at_send(self, count: int, name: str) -> None:
        """Send the signal before the client sends the frame with this number, counted from 0, over the ring."""
        self._at_send = count, name

    def reached(self, phase: str) -> None:
        """Take in that the client is in a phase."""
        if (name := self._at_phase.pop(phase, None)) is not None:
            _send_to_this_thread(name)

    def sends(self) -> None:
        """Take in that the client is about to send a frame over the ring."""
        if self._at_send is None:
            return
        count, name = self._at_send
        self._at_send = (count - 1, name) if count else None
        if not count:
            _send_to_this_thread(name)

    def _make_network(self, plan: Plan) -> Network | None:
        network = make_network(plan)
        return None if network is None else cast("Network", _ObservedNetwork(network, self))

    def _make_machine(self, config: PeerConfig, now: float) -> PeerMachine:
        return _ObservedMachine(config, now, self)


class _ObservedMachine(PeerMachine):
    def __init__(self, config: PeerConfig, now: float, points: FaultPoints) -> None:
        super().__init__(config, now)
        self._points = points

    def handle(self, event: PeerEvent, now: float) -> Effects:
        effects = super().handle(event, now)
        self._points.reached(self.phase)
        return effects


class _ObservedNetwork:
    def __init__(self, network: Network, points: FaultPoints) -> None:
        self._network = network
        self._points = points

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    async def connect_link(self, *arguments: Any) -> _ObservedLink:
        return _ObservedLink(await self._network.connect_link(*arguments), self._points)


class _ObservedLink:
    def __init__(self, link: Link, points: FaultPoints) -> None:
        self._link = link
        self._points = points

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)

    async def send(self, *parts: bytes | bytearray | memoryview) -> None:
        self._points.sends()
        await self._link.send(*parts)


def _send_to_this_thread(name: str) -> None:
    """Signal this thread: with a signal to the process, it would go on until another thread has handled that."""
    signal.pthread_kill(threading.get_ident(), signal.Signals[name])


def hold_gil(seconds: float) -> None:
    """Sleep with the GIL held: no other thread of this process runs, as during a faulty native call."""
    ctypes.PyDLL(None).usleep(round(seconds * 1e6))


def trim_memory() -> None:
    """Return the free memory of the allocator to the kernel, where that is glibc's."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


def resident_kib() -> int:
    """Return the kibibytes of this process that are in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


class FileLimit:
    """A limit of this process's open files to `spare` more than it has, until `lift`."""

    def __init__(self, spare: int) -> None:
        self._soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        # The limit is one of numbers: the free ones below the highest that is in use must go, too.
        self._fillers = [os.open(os.devnull, os.O_RDONLY)]
        while self._fillers[-1] < self._highest():
            self._fillers.append(os.dup(self._fillers[0]))
        resource.setrlimit(resource.RLIMIT_NOFILE, (self._fillers[-1] + 1 + spare, hard))

    def lift(self) -> None:
        """Restore the former limit."""
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (self._soft, hard))
        for filler in self._fillers:
            with suppress(OSError):
                os.close(filler)

    def _highest(self) -> int:
        return max(int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}"))
