"""Harm that a client does to itself, at the exact point that a test is about; see `testing.client`."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import threading
from contextlib import suppress
from typing import Any

from ..runtime.machines.peer import events as ev
from ..runtime.machines.peer.machine import PeerMachine
from ..transport.tcp.link import TcpLink


def signal_at_phase(phase: str, name: str) -> None:
    """Send this process a signal, once, when a peer of it gets to a phase, before it does what follows from that."""
    original, has_happened = PeerMachine.handle, False

    def handle(machine: PeerMachine, event: ev.PeerEvent, now: float) -> Any:
        nonlocal has_happened
        effects = original(machine, event, now)
        if machine.phase == phase and not has_happened:
            has_happened = True
            _send_to_this_thread(name)
        return effects

    PeerMachine.handle = handle  # type: ignore[method-assign, assignment]


def signal_at_send(count: int, name: str) -> None:
    """Send this process a signal, once, before it sends the frame with this number, counted from 0, over the ring."""
    original, sent = TcpLink.send, 0

    async def send(link: TcpLink, *parts: bytes | bytearray | memoryview) -> None:
        nonlocal sent
        sent += 1
        if sent == count + 1:
            _send_to_this_thread(name)
        await original(link, *parts)

    TcpLink.send = send  # type: ignore[method-assign, assignment]


def _send_to_this_thread(name: str) -> None:
    """Not to the process: one that is to stop would go on until another thread has taken notice."""
    signal.pthread_kill(threading.get_ident(), signal.Signals[name])


def hold_gil(seconds: float) -> None:
    """Sleep without letting any other thread of this process run, as a native call may that is badly written."""
    ctypes.PyDLL(None).usleep(round(seconds * 1e6))


def trim_memory() -> None:
    """Give the kernel back what the allocator keeps for later, where it is glibc's."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


def resident_kib() -> int:
    """Return the kibibytes of this process that are in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


class FileLimit:
    """Leaves this process room for so many open files more than it has, until it is lifted."""

    def __init__(self, spare: int) -> None:
        self._soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        # The limit is one of numbers: the free ones below the highest that is in use must go, too.
        self._fillers = [os.open(os.devnull, os.O_RDONLY)]
        while self._fillers[-1] < self._highest():
            self._fillers.append(os.dup(self._fillers[0]))
        resource.setrlimit(resource.RLIMIT_NOFILE, (self._fillers[-1] + 1 + spare, hard))

    def lift(self) -> None:
        """Undo it."""
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (self._soft, hard))
        for filler in self._fillers:
            with suppress(OSError):
                os.close(filler)

    def _highest(self) -> int:
        return max(int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}"))
