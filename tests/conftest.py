"""Fixtures and options of all tests."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

import pytest
import uvloop
from hypothesis import settings

# Before pytest does: it takes the root of the checkout for a package, and would import that under this name where the
# folder is called `bringup`. Tests are of the installed package.
import bringup

from .lib.leftovers import Resources, tasks_left

# A job in the background is started with these ignored, and so would be all that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
for ignored in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(ignored, signal.SIG_DFL)

# Its default is a time limit for each example: no test is one of the machine's speed.
settings.register_profile("bringup", deadline=None)
settings.load_profile("bringup")


def pytest_configure(config: pytest.Config) -> None:
    """Give the tests a runtime folder of their own: the token for jobs on loopback is made there, and not in yours."""
    folder = tempfile.TemporaryDirectory(prefix="bringup-tests-")
    config.add_cleanup(folder.cleanup)
    os.environ["XDG_RUNTIME_DIR"] = folder.name


def pytest_report_header() -> str:
    return f"bringup: {bringup.__version__}, {Path(bringup.__file__).parent}"


LOOPS: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return LOOPS if item.get_closest_marker("every_loop") else {"asyncio": asyncio.new_event_loop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have asynchronous tests, and no others, use a fixture with an event loop, before all that have tasks."""
    for item in items:
        if isinstance(item, pytest.Function) and _is_asynchronous(item):
            item.fixturenames.insert(item.fixturenames.index("nothing_is_left") + 1, "no_task_is_left")


def _is_asynchronous(item: pytest.Item) -> bool:
    return item.get_closest_marker("asyncio") is not None


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check that an asynchronous test leaves no thread or descriptor behind, once its event loop is closed."""
    if not _is_asynchronous(request.node):
        yield
        return
    before = Resources()
    yield
    # Logged exceptions keep frames alive, and with them what is open there.
    caplog.get_records("call").clear()
    assert not (left := before.left()), f"left behind: {left}"


_TURNS = 10
"""Of the loop, for the callbacks of what has just ended."""

_GRPC_TIMEOUT = 10.0
"""Seconds for the tasks of gRPC's own: they end once its core, which has threads, has reported the end of a call."""


@pytest.fixture
async def no_task_is_left() -> AsyncIterator[None]:
    """Check that a test leaves no task behind, and no error that nobody has seen."""
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    yield
    for _ in range(_TURNS):
        if tasks_left():
            await asyncio.sleep(0)
    if of_grpc := [task for task in tasks_left() if "/grpc/_cython/" in repr(task)]:
        await asyncio.wait(of_grpc, timeout=_GRPC_TIMEOUT)
    assert not (left := tasks_left()), f"tasks were left behind: {left}"
    assert not complaints
