"""Reports of the state and the error of a client to its launcher: bringup's own, by `BRINGUP_LAUNCHER`, or torchrun.

Without a launcher it has no effect. The hooks for uncaught exceptions belong to the interpreter: they are installed
once in a process, for all clients that it is one after the other.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

from ...errors import NotInitializedError
from ...processes.report import ClientState, ErrorReport, Launch, error_path, owner_path, state_path, torch_error
from ..drivers.latch import Latch


class Reporter:
    """Reports on one client.

    Args:
        launch: where to.
        client_id: which client this process is.
        jobs: the addresses of its job.
        failed: what has ended the job.
    """

    def __init__(self, launch: Launch, client_id: int, jobs: tuple[str, ...], failed: Latch[BaseException]) -> None:
        self._launch = launch
        self._client_id = client_id
        self._jobs = jobs
        self._failed = failed
        self._pid = os.getpid()
        self._host = socket.gethostname()
        self._lock = threading.Lock()
        self._is_final = False
        self._own_thread_failed = False
        self._wrote_for_torch = False

    def start(self, up: Latch[Any]) -> None:
        """Report the client as starting, and from now on that it is up and the error that ends it."""
        global _reporter
        if not self._launch or (self._launch.prefix and not _is_owner(owner_path(self._launch.prefix))):
            return
        _reporter = self
        self._tell_state("starting")
        # Before the others hear of it: they may end the process in the next moment.
        up.on_set(lambda value: None if value is None else self._tell_state("up"))
        self._failed.on_set(self.report_failure)
        _install()

    def report_failure(self, error: BaseException) -> None:
        """Report the error that has ended the job; what the program raises because of it is a consequence."""
        if not isinstance(error, NotInitializedError):  # this client's own program has ended it
            report = self._describe(error, "")
            if not self._is_final and (report.culprits or not self._own_thread_failed):
                self._tell(report)

    def report_exception(self, error: BaseException, trace: str, *, ends_program: bool) -> None:
        """Report an exception that was not caught; one in a thread does not end the program by itself."""
        if ends_program or not self._is_final:
            self._is_final = self._is_final or ends_program
            self._own_thread_failed = True
            self._tell(self._describe(error, trace))

    def _describe(self, error: BaseException, trace: str) -> ErrorReport:
        failure = self._failed.value
        return ErrorReport.of_error(
            error, client_id=self._client_id, host=self._host, trace=trace, failure=failure, at=time.time()
        )

    def _tell(self, report: ErrorReport) -> None:
        if os.getpid() != self._pid:
            return
        with self._lock:
            if self._launch.prefix:
                _write(error_path(self._launch.prefix), report.to_json())
            if self._launch.torch_file and (self._wrote_for_torch or not _has_text(self._launch.torch_file)):
                self._wrote_for_torch = True
                _write(self._launch.torch_file, json.dumps(torch_error(report)))

    def left(self) -> None:
        """Report that this client has left its job in order."""
        if self._failed.value is None and os.getpid() == self._pid:
            self._tell_state("left")

    def _tell_state(self, state: str) -> None:
        if self._launch.prefix:
            _write(state_path(self._launch.prefix), ClientState(state, self._jobs).to_json())


_reporter: Reporter | None = None
_installed = False


def report_left() -> None:
    """Report that the client of this process has left its job in order."""
    if _reporter is not None:
        _reporter.left()


def _install() -> None:
    """Hook uncaught exceptions, before the hooks that are there."""
    global _installed
    if _installed:
        return
    _installed = True
    sys.excepthook = _before(sys.excepthook)
    threading.excepthook = _before_of_threads(threading.excepthook)


def _before(hook: Callable[..., Any]) -> Callable[..., Any]:
    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        _report(error, trace, ends_program=True)
        hook(kind, error, trace)

    return report


def _before_of_threads(hook: Callable[..., Any]) -> Callable[..., Any]:
    def report(arguments: threading.ExceptHookArgs) -> None:
        if arguments.exc_value is not None and not isinstance(arguments.exc_value, SystemExit):
            _report(arguments.exc_value, arguments.exc_traceback, ends_program=False)
        hook(arguments)

    return report


def _report(error: BaseException, trace: TracebackType | None, *, ends_program: bool) -> None:
    if _reporter is not None:
        # Whatever a user's exception does when it is shown, the hooks behind this one are called.
        with contextlib.suppress(Exception):
            text = "".join(traceback.format_exception(type(error), error, trace))
            _reporter.report_exception(error, text, ends_program=ends_program)


def _is_owner(path: str) -> bool:
    """Whether this process is the client that the launcher started, and no child of it: the first one that asks.

    Another one is it once the first has ended, as where a script runs a program again.
    """
    own = str(os.getpid())
    with contextlib.suppress(OSError):  # a launcher that has gone: nothing reaches it
        with contextlib.suppress(FileExistsError):
            os.symlink(own, path)  # made and filled in one step
        owner = os.readlink(path)
        if owner != own and _is_alive(int(owner)):
            return False
        if owner != own:
            os.unlink(path)
            os.symlink(own, path)
    return True


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def _has_text(path: str) -> bool:
    try:
        return os.path.getsize(path) > 0
    except OSError:
        return False


def _write(path: str, text: str) -> None:
    """Write a file as a whole. It is small, local, and written in microseconds."""
    part = f"{path}.{os.getpid()}"
    with contextlib.suppress(OSError):  # a launcher that has gone, or a full disk: it is told by the exit status
        with open(part, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        os.replace(part, path)
