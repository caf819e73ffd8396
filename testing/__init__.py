"""Helpers for tests of programs that use bringup: jobs of real processes, faults, and jobs within one process.

`LocalJob` runs a job of real client processes on this machine, your program or clients with remote calls, and kills,
stops and cuts them off. `FakeJob` is a job within this process, for unit tests, and `MemoryNetwork` is its network.
`BackendContract` has the tests that every device backend passes. `bringup.testing.plugin` is a plugin for pytest. The
names below are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..transport.tcp.interfaces import free_ports as free_ports
    from .backend_contract import BackendContract as BackendContract
    from .fake import FakeJob as FakeJob
    from .fake import FakeSystem as FakeSystem
    from .job import Cut as Cut
    from .job import LocalJob as LocalJob
    from .memory_network import MemoryNetwork as MemoryNetwork
    from .namespaces import NamespacesUnavailableError as NamespacesUnavailableError
    from .namespaces import why_unavailable as why_unavailable
    from .remote_calls import Answer as Answer
    from .remote_calls import Call as Call
    from .remote_calls import LocalClient as LocalClient

_HOME_OF = {
    "Answer": ".remote_calls",
    "BackendContract": ".backend_contract",
    "Call": ".remote_calls",
    "Cut": ".job",
    "FakeJob": ".fake",
    "FakeSystem": ".fake",
    "LocalClient": ".remote_calls",
    "LocalJob": ".job",
    "MemoryNetwork": ".memory_network",
    "NamespacesUnavailableError": ".namespaces",
    "free_ports": "..transport.tcp.interfaces",
    "why_unavailable": ".namespaces",
}

__all__ = [
    "Answer",
    "BackendContract",
    "Call",
    "Cut",
    "FakeJob",
    "FakeSystem",
    "LocalClient",
    "LocalJob",
    "MemoryNetwork",
    "NamespacesUnavailableError",
    "free_ports",
    "why_unavailable",
]


def __getattr__(name: str) -> Any:
    if (home := _HOME_OF.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(home, __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
