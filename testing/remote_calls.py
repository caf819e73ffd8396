"""Remote calls in the client processes of a test, and their answers."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigurationError
from .process import ANSWER_TIMEOUT, AnyProcess, LocalProcess


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a call.

    Attributes:
        value: what it returned.
        error: the type of the exception it raised, or `None`.
        text: the exception's text.
        attributes: its public attributes; mappings have text keys.
        bases: the names of the exception's classes, its own first.
        at: when, on the machine's monotonic clock, in seconds.
    """

    value: Any
    error: str | None
    text: str
    attributes: Mapping[str, Any]
    bases: tuple[str, ...]
    at: float


class Call:
    """A call in a client process."""

    def __init__(self, client: LocalClient, number: int, name: str) -> None:
        self.number = number
        self._client = client
        self._name = name
        self._done = threading.Event()
        self._answer: Answer | None = None

    def settle(self, answer: Answer | None) -> None:
        """Take the answer; `None` when the process ended without one."""
        self._answer = answer
        self._done.set()

    def is_answered(self, timeout: float = 0.0) -> bool:
        """Wait up to `timeout` seconds; returns whether there is an answer."""
        return self._done.wait(timeout) and self._answer is not None

    def answer(self, timeout: float = ANSWER_TIMEOUT) -> Answer:
        """Wait for the answer.

        Raises:
            AssertionError: none came; says what the client has written.
        """
        came = self._done.wait(timeout)
        what = f"{self._name}() of client {self._client.client_id}"
        assert came, f"{what} did not answer within {timeout:g} s; {self._client.describe()}"
        assert self._answer is not None, f"{what} was cut short; {self._client.describe()}"
        return self._answer

    def value(self, timeout: float = ANSWER_TIMEOUT) -> Any:
        """Wait for the result of the call; raises `AssertionError` where it raised."""
        answer = self.answer(timeout)
        assert answer.error is None, f"{self._name}() raised {answer.error}: {answer.text}; {self._client.describe()}"
        return answer.value

    def error(self, timeout: float = ANSWER_TIMEOUT) -> Answer:
        """Wait for the exception that the call raises; raises `AssertionError` where it returned."""
        answer = self.answer(timeout)
        assert answer.error is not None, f"{self._name}() returned {answer.value!r}; {self._client.describe()}"
        return answer


class LocalClient(LocalProcess):
    """A client of a `LocalJob`: a given program, or `testing.client`, which takes remote calls.

    Args:
        client_id: which client of its job it is.
        command: the program, or `None` for ours.
        process: the process that runs it.
        forget: called with its process group once that has ended.

    Attributes:
        command: the program, or `None` for ours.
    """

    def __init__(
        self, client_id: int, command: Sequence[str] | None, process: AnyProcess, forget: Callable[[int], None]
    ) -> None:
        self.command = command
        self._numbers = itertools.count(1)
        self._calls: dict[int, Call] = {}
        self._lock = threading.Lock()
        self._has_ended = False
        super().__init__(client_id, process, forget)

    def call(self, name: str, /, **arguments: Any) -> Call:
        """Start a call in the client: a method of its system, or one of `testing.client`.

        Raises:
            ConfigurationError: it runs a program of yours, which takes no calls.
        """
        if self.command:
            raise ConfigurationError(
                f"client {self.client_id} runs {self.command[0]!r}, which takes no calls: leave "
                f"`command` out, or have the program do {name}() itself"
            )
        number = next(self._numbers)
        call = Call(self, number, name)
        with self._lock:
            if self._has_ended:
                call.settle(None)
                return call
            self._calls[number] = call
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"id": number, "call": name, "arguments": arguments}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self._cut_short()
        return call

    def _take(self, stream: str, line: str) -> None:
        if self.command or stream == "stderr":
            return super()._take(stream, line)
        answer = json.loads(line)
        call = self._calls.pop(answer["id"])
        return call.settle(
            Answer(
                answer.get("value"),
                answer.get("error"),
                answer.get("text", ""),
                answer.get("attributes", {}),
                tuple(answer.get("bases", ())),
                answer["at"],
            )
        )

    def _end(self, stream: str) -> None:
        if stream == "stdout":
            self._cut_short()

    def _cut_short(self) -> None:
        with self._lock:
            self._has_ended = True
            calls, self._calls = list(self._calls.values()), {}
        for call in calls:
            call.settle(None)
