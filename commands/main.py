"""The command `bringup`: each sub-command is a module of this package, imported when it is asked for."""

from __future__ import annotations

import sys

import click

from .. import __version__
from ..errors import BringupError, ConfigurationError
from .lazy_group import Entry, LazyGroup

_COMMANDS = {
    "run": Entry("run", "run", "Start N clients of a command on this machine."),
    "demo": Entry("demo.command", "demo", "Bring up a job of N clients on this machine, and show it."),
    "resolve": Entry("resolve", "resolve", "Show which job this environment describes."),
    "topology": Entry("topology", "topology", "Draw a slice, and show what a mesh on it costs."),
    "bench": Entry("bench", "bench", "Measure bringup on this machine, beside other libraries."),
}


@click.group(
    cls=LazyGroup,
    package=__package__,
    entries=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
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
