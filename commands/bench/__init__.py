"""`bringup bench`: the speed of start-up, failure notices and services on this machine, beside other libraries.

This module imports only the list of commands: measured processes import it, and are to load as little as possible.
"""

from __future__ import annotations

import click

from ..lazy_group import Entry, LazyGroup

_COMMANDS = {
    "startup": Entry("startup", "startup_command", "Time the start-up of jobs on this machine's loopback."),
    "failure": Entry(
        "failure.command", "failure_command", "Time until all survivors of a fault are told, and of whom."
    ),
    "services": Entry("services.command", "services_command", "Time the key-value store and the barriers."),
    "topology": Entry("topology", "topology_command", "Time a large job's topology, its mesh and its rings."),
}


@click.group(cls=LazyGroup, package=__package__, entries=_COMMANDS)
def bench() -> None:
    """Measure bringup on this machine."""
