"""Helper processes: each answers lines of JSON on its standard input with lines of JSON on its standard output."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from .endings import describe_end, last_lines
from .groups import kill_group
from .json_lines import json_line

_END_TIMEOUT = 10.0
"""Seconds that a helper may take to end once its input has: what it holds is given back by the kernel after that."""

_SHOWN_LINES = 4


class HelperEndedError(Exception):
    """The helper ended instead of answering; the text is a predicate with its last lines of output."""


class HelperProcess:
    """A process that answers questions; a context manager that ends it.

    It leads a session of its own, so that Ctrl-C in a terminal reaches this process alone. It ends when its input does,
    and so with this process, however that ends.

    Args:
        command: what to run.
        environ: all of its environment; `None` for this process's.
        cwd: the folder to run it in; `None` for this process's.
    """

    def __init__(
        self, command: Sequence[str], *, environ: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> None:
        # A file, as nobody reads a pipe while an answer is awaited.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=None if environ is None else dict(environ),
                cwd=cwd,
                start_new_session=True,
            )
        except BaseException:
            self._errors.close()
            raise

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ask(self, question: object) -> Any:
        """Send a question and wait for the answer.

        Raises:
            HelperEndedError: it ended instead.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, which the lack of an answer tells
            self._process.stdin.write(json_line(question))
            self._process.stdin.flush()
        return self.answer()

    def answer(self) -> Any:
        """Wait for what it says next; see `ask`."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        end = describe_end(self._process.wait())
        self._errors.seek(0)
        raise HelperEndedError(end + last_lines(self._errors.read(), _SHOWN_LINES))

    def close(self) -> None:
        """End its input, and kill it, with all that it has started, where it does not end by itself."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process.stdout.close()
        self._errors.close()

    def kill(self) -> None:
        """Kill it, with all that it has started."""
        kill_group(self._process.pid)
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def serve(answer: Callable[[Any], object], first: object = None) -> None:
    """Answer questions until the input ends: the other side of a `HelperProcess`.

    What is printed meanwhile goes to standard error, so that it does not come between the answers.

    Args:
        answer: called with each question; what it returns is the answer.
        first: what to say before the first question, if anything.
    """
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        if first is not None:
            answers.write(json_line(first))
            answers.flush()
        for line in sys.stdin.buffer:
            answers.write(json_line(answer(json.loads(line))))
            answers.flush()
