"""Fixtures of several contract suites."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..lib.isolated import Native, native_backends
from .places import DEADLINE, PLACES, LoopFactory, Place, loop_factories, place_of_running_loop
from .stand_in import Make, StandIn, build


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, LoopFactory] | None:
    """Run a test with a place in each of its places, on a loop of its kind."""
    if not isinstance(item, pytest.Function) or "place" not in item.fixturenames:
        return None
    mark = item.get_closest_marker("places")
    return loop_factories(PLACES if mark is None else mark.args)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bound tests with a place: loopback and memory are fast, and a wait that never ends is to show soon."""
    for item in items:
        if isinstance(item, pytest.Function) and "place" in item.fixturenames:
            item.add_marker(pytest.mark.timeout(DEADLINE))


@pytest.fixture
async def place() -> Place:
    """Return a fresh network, one for each of `PLACES`."""
    return place_of_running_loop()


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the stand-ins once."""
    folder = tmp_path_factory.mktemp("stand-ins")
    build(folder)
    return folder


@pytest.fixture
def make(libraries: Path, tmp_path: Path) -> Iterator[Make]:
    """Return a function that starts a process; it gets settings, and what `StandIn` takes."""
    made: list[StandIn] = []

    def do(settings: dict[str, int] | None = None, **arguments: Any) -> StandIn:
        made.append(StandIn(libraries, tmp_path, settings or {}, **arguments))
        return made[-1]

    yield do
    for one in made:
        one.kill()


@pytest.fixture
def native(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Native:
    """Return a function that makes an isolated backend with the given bodies of calls."""
    return native_backends(tmp_path, monkeypatch)
