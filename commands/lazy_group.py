"""A group of commands that are imported when they are asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import click

from ..errors import BringupError


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command is defined, and what the list of commands says of it."""

    module: str
    attribute: str
    summary: str


class LazyGroup(click.Group):
    """Knows its commands without importing them: help is quick, and one that cannot be imported harms no other.

    Args:
        package: the package whose modules the entries name.
        entries: the commands by name, in the order in which they are listed.
        **attributes: those of any group.
    """

    def __init__(self, *, package: str, entries: Mapping[str, Entry], **attributes: Any) -> None:
        super().__init__(**attributes)
        self._package = package
        self._entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(self._entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command.

        Raises:
            BringupError: it cannot be imported.
        """
        if (entry := self._entries.get(cmd_name)) is None:
            return None
        try:
            module = importlib.import_module(f".{entry.module}", self._package)
        except ImportError as error:
            raise BringupError(
                f"the command {cmd_name!r} cannot be loaded: {error}. Install bringup again, with all its dependencies."
            ) from None
        return cast("click.Command", getattr(module, entry.attribute))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in self._entries.items()])
