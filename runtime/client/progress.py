"""Says what a bring-up waits for while it waits: on a terminal as one line, elsewhere in the log."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any

from ..machines.phases import Progress
from .latch import Latch
from .output import Output, own_output, stderr_descriptor

if TYPE_CHECKING:
    from ..drivers.peer import CoordinationPeer

_log = logging.getLogger("bringup")

_LINE_PATIENCE = 1.0
_LINE_INTERVAL = 0.5
_LOG_PATIENCE = 10.0
_LOG_FACTOR = 2.0
_ERASE_LINE = "\r\x1b[2K"
_COLUMNS = 80
_CUT = "..."


async def show_progress(peer: CoordinationPeer, up: Latch[Any]) -> None:
    """Show how far `peer` is, until it is `up`; cancel it to stop.

    On a terminal from the first second on. In the log as warnings: after 10 s, after 20 s, after 40 s, and so on.
    """
    output, terminal = own_output(), _terminal()
    if output is not None and terminal is not None:
        await _show_line(output, terminal, peer, up)
    else:
        await _log_lines(peer, up)


async def _show_line(output: Output, terminal: int, peer: CoordinationPeer, up: Latch[Any]) -> None:
    await asyncio.sleep(_LINE_PATIENCE)
    try:
        while not up.is_set:
            line = f"bringup: {describe(peer.machine.config.client_id, peer.machine.progress(peer.clock()))}"
            output.show(f"{_ERASE_LINE}{fit(line, _columns(terminal))}".encode(errors="replace"))
            await asyncio.sleep(_LINE_INTERVAL)
    finally:
        output.show(_ERASE_LINE.encode())


async def _log_lines(peer: CoordinationPeer, up: Latch[Any]) -> None:
    pause = _LOG_PATIENCE
    while True:
        await asyncio.sleep(pause)
        if up.is_set:
            return
        progress = peer.machine.progress(peer.clock())
        _log.warning("%s", describe(peer.machine.config.client_id, progress))
        pause = max(pause, (_LOG_FACTOR - 1.0) * progress.elapsed)


def describe(client_id: int, progress: Progress) -> str:
    """Return one line: who, in which phase, since when, waiting for whom."""
    line = f"client {client_id} in phase {progress.phase} for {progress.elapsed:.0f} s"
    return f"{line}, waiting for {progress.waiting_for}" if progress.waiting_for else line


def fit(line: str, columns: int) -> str:
    """Return a line that a terminal of so many columns shows in one row, with the cursor in it."""
    width = max(columns - 1, len(_CUT))
    return line if len(line) <= width else line[: width - len(_CUT)] + _CUT


def _terminal() -> int | None:
    descriptor = stderr_descriptor()
    return descriptor if descriptor is not None and os.isatty(descriptor) else None


def _columns(terminal: int) -> int:
    try:
        return os.get_terminal_size(terminal).columns or _COLUMNS
    except OSError:
        return _COLUMNS
