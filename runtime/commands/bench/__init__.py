"""`bringup bench`: how fast this machine brings jobs up, beside other libraries."""

from __future__ import annotations

import click

from .startup import startup_command

__all__ = ["bench"]


@click.group()
def bench() -> None:
    """Measure bringup on this machine."""


bench.add_command(startup_command)
