"""The command `bringup` and the list of its commands, each a module of this package that is imported when it is run."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import click

from .. import __version__
from ..errors import BringupError, ConfigurationError
from ..runtime.configuration.handed_tokens import HANDED


@dataclass(frozen=True, slots=True)
class Entry:
    """The definition of a command, `module:attribute` in this package, and its line in the list of commands."""

    target: str
    summary: str


class LazyGroup(click.Group):
    """A group that lists its commands without importing them: help is quick, and a broken command harms no other.

    Args:
        entries: The commands by name, in the order of the list.
        **attributes: Those of any group.
    """

    def __init__(self, *, entries: Mapping[str, Entry], **attributes: Any) -> None:
        super().__init__(**attributes)
        self._entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands."""
        return list(self._entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command.

        Raises:
            BringupError: it cannot be imported.
        """
        if (entry := self._entries.get(cmd_name)) is None:
            return None
        module, _, attribute = entry.target.partition(":")
        try:
            return cast("click.Command", getattr(importlib.import_module(f".{module}", __package__), attribute))
        except ImportError as error:
            raise BringupError(
                f"the command {cmd_name!r} cannot be loaded: {error}. Install bringup again, with all its dependencies."
            ) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in self._entries.items()])


_COMMANDS = {
    "run": Entry("run:run", "Start N clients of a command on this machine."),
    "demo": Entry("demo.command:demo", "Bring up a job of N clients on this machine, and show it."),
    "resolve": Entry("resolve:resolve", "Show which job this environment describes."),
    "token": Entry("token:token", "Make a token, the secret of a job."),
    "topology": Entry("topology.command:topology", "Draw a slice, and show what a mesh on it costs."),
    "bench": Entry("main:bench", "Measure bringup on this machine, beside other libraries."),
}
_BENCH_COMMANDS = {
    "startup": Entry("bench.startup:startup_command", "Time the start-up of jobs on this machine's loopback."),
    "failure": Entry(
        "bench.failure.command:failure_command", "Time until all survivors of a fault are told, and of whom."
    ),
    "services": Entry("bench.services.command:services_command", "Time the key-value store and the barriers."),
    "scale": Entry("bench.scale.command:scale_command", "Measure the cost of jobs by their number of clients."),
    "topology": Entry("bench.topology:topology_command", "Time a large job's topology, its mesh and its rings."),
}


@click.group(cls=LazyGroup, entries=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="bringup")
def cli() -> None:
    """Bring up the accelerators of a multi-client job: all clients together, with one call."""


@click.group(cls=LazyGroup, entries=_BENCH_COMMANDS)
def bench() -> None:
    """Measure bringup on this machine."""


def main() -> None:
    """Run the command line of this process; the entry point of `bringup` and of `python -m bringup`."""
    # Nothing that a command starts is to find the token there.
    HANDED.take(os.environ)
    try:
        cli(prog_name="bringup")
    except BringupError as error:
        click.echo(f"bringup: {error}", err=True)
        sys.exit(2 if isinstance(error, ConfigurationError) else 1)
