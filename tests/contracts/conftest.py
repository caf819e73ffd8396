"""What several suites use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..lib.isolated import Native, native_backends
from .stand_in import Make, StandIn, build


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
