"""The blocking face of bringup, for scripts and threads: `bringup.sync.initialize()` returns a `SyncSystem`."""

from ..runtime.blocking import SyncSystem, current, initialize

__all__ = ["SyncSystem", "current", "initialize"]
