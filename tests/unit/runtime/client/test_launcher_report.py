"""Reports of a client to its launchers: their content and times, and none without a launcher."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bringup import NotInitializedError, PeerFailedError
from bringup.commands.launcher import ClientReports
from bringup.processes.report import Launch
from bringup.runtime.client import launcher_report as launched
from bringup.runtime.client.launcher_report import Reporter, report_left
from bringup.runtime.drivers.latch import Latch

JOBS = ("127.0.0.1:1", "127.0.0.1:2")
PEER = PeerFailedError("client 0 failed", client_id=0, cause="process died")


class Launched:
    """A client with a launcher of each kind."""

    def __init__(self, torch_file: Path) -> None:
        self.reports = ClientReports(JOBS)
        self.torch_file = torch_file
        self.up: Latch[Any] = Latch()
        self.failed: Latch[BaseException] = Latch()
        launch = Launch(self.reports.prefix(1), str(torch_file))
        self.reporter = Reporter(launch, 1, JOBS, self.failed)
        self.reporter.start(self.up)

    @property
    def state(self) -> str:
        return self.reports.state(1)

    @property
    def error(self) -> tuple[str, tuple[int, ...]] | None:
        report = self.reports.error(1)
        return None if report is None else (f"{report.error}: {report.text}", report.culprits)


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("_reporter", "_installed"):
        monkeypatch.setattr(launched, name, getattr(launched, name))
    seen: list[Any] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: seen.append(error))
    monkeypatch.setattr(threading, "excepthook", lambda arguments: seen.append(arguments.exc_value))
    client = Launched(tmp_path / "error.json")
    client.seen = seen  # type: ignore[attr-defined]
    yield client
    client.reports.close()


def in_a_thread(error: BaseException) -> None:
    def fail() -> None:
        raise error

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join(30)


def raised(error: BaseException) -> None:
    """Do as the interpreter does with an exception that nobody has caught."""
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001 - any
        sys.excepthook(type(caught), caught, caught.__traceback__)


def test_how_far_it_is(client: Launched) -> None:
    assert client.state == "starting"
    client.up.set(object())
    assert client.state == "up"
    report_left()
    assert client.state == "left"


def test_a_client_that_failed_has_not_left(client: Launched) -> None:
    client.up.set(object())
    client.failed.set(PEER)
    report_left()
    assert client.state == "up"


def test_another_job_is_none_of_the_launchers(client: Launched) -> None:
    launch = Launch(client.reports.prefix(1))
    Reporter(launch, 1, ("127.0.0.1:3",), Latch()).start(Latch())
    assert client.state == ""


def test_whose_failure_it_is_stands_there_before_the_program_hears_of_it(client: Launched) -> None:
    client.failed.on_set(lambda _: seen.append(client.error))
    seen: list[Any] = []
    client.failed.set(PEER)
    assert seen == [("PeerFailedError: client 0 failed", (0,))]
    raised(RuntimeError("NCCL: connection reset"))
    assert client.error == ("RuntimeError: NCCL: connection reset", (0,))


def test_what_the_program_did_itself_is_not_told_anew_by_the_goodbye_that_follows(client: Launched) -> None:
    error = ValueError("bad batch")
    raised(error)
    client.failed.set(NotInitializedError("this client has ended: SystemExit"))
    assert client.error == ("ValueError: bad batch", ())
    assert client.seen == [error]  # type: ignore[attr-defined]
    told = json.loads(client.torch_file.read_text())
    assert told["message"]["message"] == "ValueError: bad batch"
    assert "in raised" in told["message"]["extraInfo"]["py_callstack"]


def test_a_thread_that_failed_counts_until_more_is_known(client: Launched) -> None:
    in_a_thread(KeyError("loader"))
    assert client.error == ("KeyError: 'loader'", ())
    client.failed.set(PeerFailedError("client 1 failed", client_id=1, cause="no progress"))
    assert client.error == ("KeyError: 'loader'", ()), "the stall is what came of it"
    raised(ValueError("the end"))
    in_a_thread(KeyError("too late"))
    assert client.error == ("ValueError: the end", ())


def test_a_thread_that_failed_does_not_hide_whose_failure_came_later(client: Launched) -> None:
    in_a_thread(KeyError("loader"))
    client.failed.set(PEER)
    assert client.error == ("PeerFailedError: client 0 failed", (0,))


def test_an_error_file_that_somebody_else_has_written_is_left_alone(client: Launched) -> None:
    client.torch_file.write_text("{}")
    raised(ValueError("bad batch"))
    assert client.torch_file.read_text() == "{}"
    assert client.error == ("ValueError: bad batch", ())


def test_a_forked_child_tells_nothing(client: Launched) -> None:
    pid = os.fork()
    if pid == 0:
        raised(ValueError("in the child"))
        report_left()
        os._exit(0)
    os.waitpid(pid, 0)
    assert client.error is None
    assert client.state == "starting"


def in_a_child(do: Callable[[], None]) -> None:
    child = os.fork()
    if child == 0:
        try:
            do()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def test_a_child_with_a_job_of_its_own_tells_nothing(client: Launched) -> None:
    def fail_in_a_job_of_its_own() -> None:
        launch = Launch(client.reports.prefix(1), str(client.torch_file))
        Reporter(launch, 0, ("127.0.0.1:3",), Latch()).start(Latch())
        raised(ValueError("of no importance"))

    in_a_child(fail_in_a_job_of_its_own)
    assert (client.state, client.error) == ("starting", None)
    assert not client.torch_file.exists()


def test_a_program_that_is_run_again_tells_how_it_fares_then(client: Launched) -> None:
    launch = Launch(client.reports.prefix(2))
    in_a_child(lambda: Reporter(launch, 2, JOBS, Latch()).start(Latch()))
    up: Latch[Any] = Latch()
    Reporter(launch, 2, JOBS, Latch()).start(up)
    up.set(object())
    assert client.reports.state(2) == "up"


def test_a_launcher_that_has_gone_is_no_error(client: Launched) -> None:
    client.reports.close()
    client.up.set(object())
    raised(ValueError("bad batch"))
    assert client.error is None


def test_an_exception_that_cannot_be_shown_reaches_the_users_own_hook(client: Launched) -> None:
    class Unshowable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    raised(Unshowable())
    assert [type(error) for error in client.seen] == [Unshowable]  # type: ignore[attr-defined]


def test_without_a_launcher_nothing_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launched, "_installed", False)
    before = (sys.excepthook, threading.excepthook)
    up: Latch[Any] = Latch()
    Reporter(Launch.of_environment({}), 0, (), Latch()).start(up)
    assert (sys.excepthook, threading.excepthook) == before
    assert not up._callbacks
