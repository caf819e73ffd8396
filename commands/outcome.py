"""How a job of processes ended."""

from __future__ import annotations

from dataclasses import dataclass

from ..processes.endings import exit_status
from ..processes.report import ErrorReport


@dataclass(frozen=True, slots=True)
class Ended:
    """A client's process that has ended.

    Attributes:
        client_id: which client it was.
        pid: its process.
        returncode: its exit status, or minus the signal that ended it.
        was_asked: whether it had been asked to end by then.
        state: how far it had got, as it said itself: empty, `starting`, `up` or `left`.
        report: what it said of its end, if it did.
        last_lines: the last that it wrote to stderr.
    """

    client_id: int
    pid: int
    returncode: int
    was_asked: bool = False
    state: str = ""
    report: ErrorReport | None = None
    last_lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended.

    Attributes:
        ended: all clients that were started, in the order in which they ended.
        first_failure: the client that failed by itself before any other; `None` where none did.
        signal: the signal that this process was asked to end with, or `None`.
        root: the client whose failure those of the others are consequences of, where that one failed by itself.
        absent: clients that ended without an error, and that others waited for.
    """

    ended: tuple[Ended, ...]
    first_failure: Ended | None
    signal: int | None
    root: Ended | None = None
    absent: tuple[int, ...] = ()

    @property
    def exit_status(self) -> int:
        """0, or what the launcher is to end with, as a shell says it: 128 and the signal where one ended it."""
        for failed in (self.root, self.first_failure):
            if failed is not None and failed.returncode != 0 and not failed.was_asked:
                return exit_status(failed.returncode)
        if self.signal is not None:
            return 128 + self.signal
        return 1 if self.absent else 0
