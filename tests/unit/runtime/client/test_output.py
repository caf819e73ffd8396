"""Log records of the runtime wait for room in a thread of their own, in order, with a time-out."""

from __future__ import annotations

import logging
import os
import pty
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bringup.runtime.client import output as module
from bringup.runtime.client.output import Output, open_output, own_output

LOG = logging.getLogger("bringup")


def on_a_thread_of_the_runtime(call: Callable[[Output], Any], close_timeout: float = 30) -> None:
    """Run `call` on a thread that has an output, and close that; fails where it does not return.

    Args:
        call: with the output.
        close_timeout: of the output, in seconds; short only where nobody takes the records.
    """

    def run() -> None:
        output = open_output("test")
        try:
            call(output)
        finally:
            output.close(close_timeout)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(close_timeout + 30)
    assert not thread.is_alive()


class FullPipe:
    """A pipe without room, as a text stream."""

    def __init__(self) -> None:
        self.reading, writing = os.pipe()
        os.set_blocking(writing, False)
        for size in (4096, 1):
            try:
                while True:
                    os.write(writing, b"x" * size)
            except BlockingIOError:
                pass
        os.set_blocking(writing, True)
        self.stream = open(writing, "w")  # noqa: SIM115 - the fixture closes it

    def drain(self) -> bytes:
        """Read all that is there, and so make room."""
        os.set_blocking(self.reading, False)
        read = b""
        try:
            while data := os.read(self.reading, 65536):
                read += data
        except BlockingIOError:
            pass
        os.set_blocking(self.reading, True)
        return read


@pytest.fixture
def pipe() -> Iterator[FullPipe]:
    pipe = FullPipe()
    yield pipe
    pipe.drain()
    pipe.stream.close()
    os.close(pipe.reading)


@pytest.fixture
def handler(pipe: FullPipe) -> Iterator[logging.Handler]:
    handler = logging.StreamHandler(pipe.stream)
    LOG.addHandler(handler)
    yield handler
    LOG.removeHandler(handler)


class Collector(logging.Handler):
    """Keeps what it is given, with the thread that gave it."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.taken.append((record.getMessage(), threading.current_thread().name))


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    LOG.addHandler(collector)
    yield collector
    LOG.removeHandler(collector)


def test_what_a_runtime_thread_logs_is_logged_in_order_by_another(collector: Collector) -> None:
    def log(_: Output) -> None:
        for number in range(1000):
            LOG.warning("number %d", number)

    on_a_thread_of_the_runtime(log)
    assert collector.taken == [(f"number {number}", "test-output") for number in range(1000)]


def test_other_threads_log_as_ever(collector: Collector) -> None:
    LOG.warning("here")
    assert own_output() is None
    assert collector.taken == [("here", threading.current_thread().name)]


def test_a_handler_without_room_holds_up_nobody_and_is_not_called(pipe: FullPipe, handler: logging.Handler) -> None:
    on_a_thread_of_the_runtime(lambda _: LOG.warning("lost"), close_timeout=0.2)
    LOG.warning("lost, too, after a second")
    assert handler.lock is not None
    assert handler.lock.acquire(timeout=10)
    handler.lock.release()
    assert b"lost" not in pipe.drain()


def test_a_handler_that_has_room_again_gets_it_all(pipe: FullPipe, handler: logging.Handler) -> None:
    def log(output: Output) -> None:
        LOG.warning("one")
        LOG.warning("two")
        seen = pipe.drain()
        output.close(30)
        assert (seen + pipe.drain()).lstrip(b"x") == b"one\ntwo\n"

    on_a_thread_of_the_runtime(log)


def test_a_handler_that_blocks_all_the_same_is_left_behind(collector: Collector) -> None:
    begun, let_go = threading.Event(), threading.Event()

    def block(record: logging.LogRecord) -> bool:
        begun.set()
        return let_go.wait(30)

    collector.addFilter(block)
    on_a_thread_of_the_runtime(lambda _: LOG.warning("held") or begun.wait(30), close_timeout=0.2)
    assert collector.taken == []
    let_go.set()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_filter_of_the_users_that_raises_costs_one_line(collector: Collector) -> None:
    ended: list[threading.Thread] = []

    def fail_once(record: logging.LogRecord) -> bool:
        if not ended:
            ended.append(threading.current_thread())
            raise ValueError("a bug in the filter")
        return True

    def log(_: Output) -> None:
        LOG.warning("one")
        while not ended:
            threading.Event().wait(0.001)
        ended[0].join(30)
        LOG.warning("two")

    collector.addFilter(fail_once)
    on_a_thread_of_the_runtime(log)
    assert [text for text, _ in collector.taken] == ["two"]


def test_very_many_lines_are_dropped_and_counted(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RECORDS_MAX", 3)
    begun, let_go = threading.Event(), threading.Event()

    def block(record: logging.LogRecord) -> bool:
        begun.set()
        return let_go.wait(30)

    def log(output: Output) -> None:
        LOG.warning("0")
        assert begun.wait(30)
        for number in range(1, 10):
            LOG.warning("%d", number)
        let_go.set()
        output.close(30)

    collector.addFilter(block)
    on_a_thread_of_the_runtime(log)
    assert [text for text, _ in collector.taken] == [
        "0",
        "1",
        "2",
        "3",
        "6 lines of the log were dropped: nobody took them",
    ]


def test_a_stopped_terminal_gets_the_last_line_only(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    with open(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        termios.tcflow(theirs, termios.TCOOFF)

        def show(output: Output) -> None:
            for number in range(100):
                output.show(b"line %d;" % number)
            termios.tcflow(theirs, termios.TCOON)
            output.close(30)
            shown = os.read(ours, 4096)
            # The thread may have taken one before the others came.
            assert shown.endswith(b"line 99;")
            assert shown.count(b";") <= 2

        on_a_thread_of_the_runtime(show)
        termios.tcflow(theirs, termios.TCOOFF)
        on_a_thread_of_the_runtime(lambda output: output.show(b"never seen"), close_timeout=0.2)
        termios.tcflow(theirs, termios.TCOON)
    os.close(ours)


@pytest.mark.parametrize("stream", ["none", "closed", "read only"])
def test_a_stderr_that_cannot_be_written_is_no_error(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull) as null:
        if stream == "closed":
            null.close()
        monkeypatch.setattr(sys, "stderr", None if stream == "none" else null)
        on_a_thread_of_the_runtime(lambda output: output.show(b"nowhere"))


def test_lines_say_whose_they_are_where_nobody_has_set_up_logging(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    with open(tmp_path / "stderr", "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        LOG.warning("from %s", "a caller")
        on_a_thread_of_the_runtime(lambda _: LOG.warning("from the runtime"))
    assert (tmp_path / "stderr").read_text() == "bringup: from a caller\nbringup: from the runtime\n"


def test_lines_are_as_they_are_where_the_logger_shows(collector: Collector) -> None:
    on_a_thread_of_the_runtime(lambda _: LOG.warning("client 1 is late"))
    assert collector.taken[0][0] == "client 1 is late"


def test_what_the_event_loop_logs_waits_as_little(collector: Collector) -> None:
    log = logging.getLogger("asyncio")
    log.addHandler(collector)
    try:
        on_a_thread_of_the_runtime(lambda _: log.error("a task was lost"))
        log.error("somebody else's")
    finally:
        log.removeHandler(collector)
    assert collector.taken == [
        ("a task was lost", "test-output"),
        ("somebody else's", threading.current_thread().name),
    ]
