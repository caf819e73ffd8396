"""`bringup bench`: how fast jobs come up on this machine, and hear of failures, beside other libraries.

Nothing is imported here but what lists the commands: the processes that are measured load as little as they can.
"""

from __future__ import annotations

import click

from ..lazy_group import Entry, LazyGroup

__all__ = ["bench"]

_COMMANDS = {
    "startup": Entry("startup.command", "startup_command", "Time the start-up of jobs on this machine's loopback."),
    "failure": Entry(
        "failure.command", "failure_command", "Time until all survivors of a fault are told, and of whom."
    ),
    "services": Entry("services.command", "services_command", "Time the key-value store and the barriers."),
    "topology": Entry("topology", "topology_command", "Time a large job's topology, its mesh and its rings."),
}


@click.group(cls=LazyGroup, package=__package__, entries=_COMMANDS)
def bench() -> None:
    """Measure bringup on this machine."""
