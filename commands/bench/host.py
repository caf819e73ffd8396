"""A host: the process that starts the clients of one program, trial after trial, and the command's end of it."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Self

from .process_group import tail
from .trials import Outcome, carry_out
from .worker import find, interpreter

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from .trials import Trial


def run_host() -> None:
    """Entry of a host: one trial a line on standard input, one outcome a line on standard output."""
    program, spawn = sys.argv[1:]
    with os.fdopen(os.dup(1), "w", buffering=1) as outcomes:
        os.dup2(2, 1)  # the libraries' own output must not come between the outcomes
        if spawn == "fork":
            find(program).load()
            gc.freeze()  # a collection in a client would copy the pages that it shares with the host
        threads = _threads()
        for line in sys.stdin:
            kind, fields = json.loads(line)
            outcome = (
                carry_out(program, find(kind)(**fields), spawn == "fork")
                if threads == 1
                else Outcome(
                    failure=f"the library runs {threads - 1} threads once imported: measure it with --spawn exec"
                )
            )
            print(json.dumps(asdict(outcome)), file=outcomes)


def _threads() -> int:
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
        self._arguments = interpreter(f"{__name__}:run_host", program, spawn)
        self._environment = dict(environment)

    def __enter__(self) -> Self:
        self._stderr = tempfile.TemporaryFile()
        # A session of its own: Ctrl-C reaches the command alone, which ends the host with all its clients.
        self._process = subprocess.Popen(
            self._arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=self._environment,
            start_new_session=True,
            text=True,
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(BrokenPipeError):
            self._process.communicate()
        self._stderr.close()

    def run(self, trial: Trial) -> Outcome:
        """Have a trial carried out; bounded by its own time-outs."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        kind = f"{type(trial).__module__}:{type(trial).__name__}"
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps([kind, asdict(trial)]) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if line:
            return Outcome(**json.loads(line))
        return Outcome(failure=f"the host ended with status {self._process.wait()}{tail(self._stderr)}")
