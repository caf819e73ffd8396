"""`bringup run`: starts N clients of one command on this machine."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import sys
from collections.abc import Sequence

import click

from .launcher import GRACE_AFTER_FAILURE, GRACE_BEYOND_SHUTDOWN, Launcher
from .outcome import Outcome
from .prefixed_output import PrefixedOutput

_NOT_FOUND = 127


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "-n",
    "--num-clients",
    type=click.IntRange(1, 4096),
    required=True,
    metavar="N",
    help="How many clients to start.",
)
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=None,
    metavar="SECONDS",
    help="Between the signal that asks a client to end and the one that kills it; "
    f"{GRACE_BEYOND_SHUTDOWN:g} more than shutdown_timeout, and {GRACE_AFTER_FAILURE:g} where a client has failed.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- COMMAND...")
def run(num_clients: int, grace: float | None, command: tuple[str, ...]) -> None:
    """Start N clients of COMMAND on this machine.

    Each finds in its environment who it is: BRINGUP_JOBS (a free loopback port for each client), BRINGUP_CLIENT_ID and
    BRINGUP_NUM_CLIENTS. BRINGUP_LOCAL_CLIENT_ID and BRINGUP_NUM_LOCAL_CLIENTS, the same numbers here, divide the GPUs
    of this machine equally among the clients. Each job gets a token of its own, by BRINGUP_TOKEN_FD, unless the
    environment has a token, certificates or BRINGUP_INSECURE. Each line of a client's output gets its id in front.
    Where a client fails, the others are ended, and the root cause is named: the exit status is that of the client that
    failed first, 128 and the signal where a signal ended it. SIGINT, SIGTERM and SIGHUP are passed on to all clients.
    What a client started and left behind is ended too.
    """
    if shutil.which(command[0]) is None:
        advice = "give a file that can be run, or a name on PATH"
        if command[0] == "-m" or command[0].endswith(".py"):
            advice = f"a Python program is run by `-- python {command[0]} ...`"
        click.echo(f"bringup: command not found: {command[0]!r}; {advice}", err=True)
        sys.exit(_NOT_FOUND)
    sys.exit(asyncio.run(_run(command, num_clients, grace)).exit_status)


async def _run(command: Sequence[str], num_clients: int, grace: float | None) -> Outcome:
    output = PrefixedOutput(lambda error: _end_unheard(launcher, output, error), os.environ)
    launcher = Launcher(command, num_clients, os.environ, on_output=output.write, say=output.say, grace=grace)
    try:
        return await launcher.run()
    finally:
        output.close()


def _end_unheard(launcher: Launcher, output: PrefixedOutput, error: OSError) -> None:
    """End the clients, as `SIGPIPE` would end a program that writes to a pipe without a reader."""
    if error.errno != errno.EPIPE:
        output.say(f"cannot write the clients' output: {error.strerror}; the clients are ended")
    launcher.stop(signal.SIGPIPE)
