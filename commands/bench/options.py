"""What the commands of `bringup bench` have in common: how they read their options, and show how far they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Callable


def clients_parser(fewest: int) -> Callable[[click.Context, click.Parameter, str], tuple[int, ...]]:
    """Return the callback of an option that lists numbers of clients, each `fewest` or more."""

    def parse(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[int, ...]:
        parts = value.split(",")
        if not all(part.strip().isdecimal() and int(part) >= fewest for part in parts):
            least = f" of {fewest} or more" if fewest > 1 else ""
            raise click.BadParameter(f"{value!r} is not a list of numbers{least} of clients; write for example 4,16,64")
        return tuple(int(part) for part in parts)

    return parse


def make_progress() -> Progress:
    """Return a bar on standard error, which stays away where that is no terminal and goes when all is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
