"""Imports that do not hold up an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import sys
import threading
from typing import Any


async def import_off_loop(name: str) -> Any:
    """Return module `name`; where it has yet to be loaded, a thread does that while the running loop goes on.

    Cancelling is safe: the thread ends the import by itself.

    Raises:
        ImportError: it cannot be loaded.
    """
    if name not in sys.modules:
        with contextlib.suppress(RuntimeError):  # no asyncio loop runs here: nobody is held up
            await _load(name, asyncio.get_running_loop())
    return importlib.import_module(name)


async def _load(name: str, loop: asyncio.AbstractEventLoop) -> None:
    loaded = asyncio.Event()

    def load() -> None:
        try:
            with contextlib.suppress(BaseException):  # the caller's own import raises it again
                importlib.import_module(name)
        finally:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits
                loop.call_soon_threadsafe(loaded.set)

    threading.Thread(target=load, daemon=True, name="bringup-import").start()
    await loaded.wait()
