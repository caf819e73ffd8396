"""A host: the process that starts the clients of one program, trial after trial, and the command's end of it."""

from __future__ import annotations

import functools
import gc
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ...processes.helper import HelperEndedError, HelperProcess, serve
from .trials import Outcome, carry_out
from .worker import find, interpreter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .trials import Trial


def run_host() -> None:
    """Entry of a host: one trial a line on standard input, one outcome a line on standard output."""
    program, spawn = sys.argv[1:]
    serve(lambda question: asdict(_answer(program, spawn == "fork", *question)))


def _answer(program: str, fork: bool, kind: str, fields: Mapping[str, Any]) -> Outcome:
    if fork:
        _load(program)
        if (threads := _count_threads()) > 1:
            return Outcome(
                failure=f"the library runs {threads - 1} threads once imported: measure it with --spawn exec"
            )
    # The command asks nothing before it has the answer: its pipe can be read only once it has ended, however.
    return carry_out(program, find(kind)(**fields), fork, lifeline=sys.stdin.fileno())


@functools.cache
def _load(program: str) -> None:
    find(program).load()
    gc.freeze()  # a collection in a client would copy the pages that it shares with the host


def _count_threads() -> int:
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.is_dir() else threading.active_count()


class Host:
    """The process that starts the clients of one program, trial after trial; a context manager.

    Args:
        program: `module:attribute` of the clients' `Program`.
        spawn: `fork` or `exec`: how the clients are started.
        environment: The host's and its clients' environment.
    """

    def __init__(self, program: str, spawn: str, environment: Mapping[str, str]) -> None:
        self._helper = HelperProcess(interpreter(f"{__name__}:run_host", program, spawn), environ=environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._helper.kill()  # with the clients of a trial that was interrupted
        self._helper.close()

    def run(self, trial: Trial) -> Outcome:
        """Have a trial carried out; bounded by its own time-outs."""
        kind = f"{type(trial).__module__}:{type(trial).__name__}"
        try:
            return Outcome(**self._helper.ask([kind, asdict(trial)]))
        except HelperEndedError as end:
            return Outcome(failure=f"the host {end}")
