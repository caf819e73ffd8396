"""Says what a bring-up waits for while it waits: on a terminal as one line, elsewhere in the log."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import TYPE_CHECKING, Any

from .latch import Latch
from .machines.peer import Progress

if TYPE_CHECKING:
    from .drivers.peer import CoordinationPeer

__all__ = ["describe", "show_progress"]

_log = logging.getLogger("bringup")

_PATIENCE = 1.0
_LINE_INTERVAL = 0.5
_LOG_INTERVAL = 10.0
_ERASE_LINE = "\r\x1b[2K"


async def show_progress(peer: CoordinationPeer, settled: Latch[Any]) -> None:
    """Show how far `peer` is, from the first second on until it is `settled`; cancel it to stop."""
    await asyncio.sleep(_PATIENCE)
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    interval = _LINE_INTERVAL if is_terminal else _LOG_INTERVAL
    try:
        while not settled.is_set:
            line = describe(peer.machine.config.client_id, peer.machine.progress(peer.clock()))
            if is_terminal:
                sys.stderr.write(f"{_ERASE_LINE}{line}")
                sys.stderr.flush()
            else:
                _log.info("%s", line)
            await asyncio.sleep(interval)
    finally:
        if is_terminal:
            sys.stderr.write(_ERASE_LINE)
            sys.stderr.flush()


def describe(client_id: int, progress: Progress) -> str:
    """Return one line: who, in which phase, since when, waiting for whom."""
    line = f"bringup: client {client_id} in phase {progress.phase} for {progress.elapsed:.0f} s"
    return f"{line}, waiting for {progress.waiting_for}" if progress.waiting_for else line
