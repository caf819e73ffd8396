"""For tests of what is built on bringup: a network in memory, and jobs of real client processes.

`MemoryNetwork` connects peers that run on one event loop; `job.LocalJob` runs a job of real processes on this machine.
"""

from __future__ import annotations

from .memory import MemoryNetwork

__all__ = ["MemoryNetwork"]
