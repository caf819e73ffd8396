"""The progress of a bring-up: a line on a terminal, warnings in the log elsewhere."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any

from ..drivers.latch import Latch
from ..machines.phases import Progress
from .output import Output, own_output, stderr_descriptor

if TYPE_CHECKING:
    from ..drivers.peer import CoordinationPeer

_log = logging.getLogger("bringup")

# Seconds until the line appears, beyond a bring-up without trouble, and between two updates of it.
_LINE_PATIENCE = 1.0
_LINE_INTERVAL = 0.5

# Seconds until the first warning, and the factor to the next: a start that takes minutes makes a handful of lines.
_LOG_PATIENCE = 10.0
_LOG_FACTOR = 2.0
_ERASE_LINE = "\r\x1b[2K"
_COLUMNS = 80
_CUT = "..."


async def show_progress(peer: CoordinationPeer, up: Latch[Any]) -> None:
    """Show the phase of `peer`, and the clients that it waits for, until it is `up`; cancel it to stop.

    On a terminal from the first second on; in the log after 10 s, 20 s, 40 s, and so on.
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
    """Return one line: client, phase, seconds in it, and the clients that it waits for."""
    line = f"client {client_id} in phase {progress.phase} for {progress.elapsed:.0f} s"
    return f"{line}, waiting for {progress.waiting_for}" if progress.waiting_for else line


def fit(line: str, columns: int) -> str:
    """Return a line, cut to one row of a terminal with `columns` columns, the cursor included."""
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
