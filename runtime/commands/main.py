"""The command `bringup`: each sub-command is a module of this package, imported when it is asked for."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from typing import cast

import click

from ... import __version__
from ...errors import BringupError, ConfigurationError

__all__ = ["cli", "main"]


@dataclass(frozen=True, slots=True)
class _Entry:
    """Where a command is defined, and what the list of commands says of it."""

    module: str
    attribute: str
    summary: str


_COMMANDS = {
    "run": _Entry("run", "run", "Start N clients of a command on this machine."),
    "demo": _Entry("demo", "demo", "Bring up a job of N clients on this machine, and show it."),
    "resolve": _Entry("resolve", "resolve", "Show which job this environment describes."),
    "bench": _Entry("bench", "bench", "Measure bringup on this machine, beside other libraries."),
}


class _LazyGroup(click.Group):
    """Knows its commands without importing them: help is quick, and one that cannot be imported harms no other."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (entry := _COMMANDS.get(cmd_name)) is None:
            return None
        try:
            module = importlib.import_module(f".{entry.module}", __package__)
        except ImportError as error:
            raise BringupError(
                f"the command {cmd_name!r} cannot be loaded: {error}. Install bringup again, with all its dependencies."
            ) from None
        return cast("click.Command", getattr(module, entry.attribute))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in _COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="bringup")
def cli() -> None:
    """Bring up the accelerators of a multi-client job: all clients together, with one call."""


def main() -> None:
    """Run the command line of this process; the entry point of `bringup` and of `python -m bringup`."""
    try:
        cli(prog_name="bringup")
    except BringupError as error:
        click.echo(f"bringup: {error}", err=True)
        sys.exit(2 if isinstance(error, ConfigurationError) else 1)
