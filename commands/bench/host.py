"""The process that starts the clients of one library, and the command's end of it."""

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
from typing import TYPE_CHECKING, Any, Self

from .process_group import tail
from .startup.run import Outcome, Plan, conduct
from .worker import find, interpreter, library_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType


def run_host() -> None:
    """Entry of a host: one plan a line on standard input, one outcome a line on standard output."""
    conductor, library, spawn = sys.argv[1:]
    conduct = find(conductor)
    with os.fdopen(os.dup(1), "w", buffering=1) as outcomes:
        os.dup2(2, 1)  # so that what the libraries print does not come between the outcomes
        if spawn == "fork":
            library_of(library).load()
            gc.freeze()  # a collection in a client would copy the pages it shares with the host
        threads = _threads()
        for line in sys.stdin:
            outcome = (
                conduct(library, json.loads(line), spawn == "fork")
                if threads == 1
                else {"failure": f"the library runs {threads - 1} threads once imported: measure it with --spawn exec"}
            )
            print(json.dumps(outcome), file=outcomes)


def _threads() -> int:
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.is_dir() else threading.active_count()


class Host:
    """The process that starts the clients of one library, run after run; a context manager.

    Args:
        library: `module:attribute` of the `Library` that is measured.
        spawn: `fork` or `exec`: how the clients are started.
        environment: The host's and its clients' environment.
        conductor: `module:attribute` of what carries a plan out there: it gets the library, the plan as JSON gives it
            back, and whether to fork, and returns the outcome, for JSON.
    """

    def __init__(
        self, library: str, spawn: str, environment: Mapping[str, str], conductor: str = f"{conduct.__module__}:conduct"
    ) -> None:
        self._arguments = interpreter(f"{__name__}:run_host", conductor, library, spawn)
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

    def run(self, plan: Plan) -> Outcome:
        """Carry one run of a start-up out; bounded by the plan's own timeouts."""
        return Outcome(**self.ask(asdict(plan)))

    def ask(self, plan: Mapping[str, Any]) -> dict[str, Any]:
        """Have one plan carried out; the outcome is `{"failure": why}` where the host could not even try."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(plan) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if line:
            outcome: dict[str, Any] = json.loads(line)
            return outcome
        return {"failure": f"the host ended with status {self._process.wait()}{tail(self._stderr)}"}
