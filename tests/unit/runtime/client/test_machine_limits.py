"""Limits that are too low for a large job are named, with the remedy."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from bringup import BringupError
from bringup.runtime.client import machine_limits
from bringup.runtime.client.machine_limits import check_open_files, short_queue


@pytest.fixture
def file_limit() -> Iterator[int]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = len(os.listdir("/proc/self/fd")) + 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_client_0_of_a_large_job_needs_files_for_all(file_limit: int) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(BringupError, match=rf"client 0 needs 20028 open files, .*limit {file_limit}.*ulimit -n"):
        check_open_files(0, 10_000)
    check_open_files(1, 10_000)
    check_open_files(0, 50)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("somaxconn", "num_clients", "wanted"),
    [("128\n", 128, 0), ("128\n", 200, 200), ("128\n", 10_000, 1024), ("4096\n", 40_000, 0), ("?", 10_000, 0)],
)
def test_a_short_queue_is_named_with_the_remedy(
    somaxconn: str, num_clients: int, wanted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "somaxconn").write_text(somaxconn)
    monkeypatch.setattr(machine_limits, "_SOMAXCONN", tmp_path / "somaxconn")
    text = short_queue(num_clients)
    assert (f"sysctl -w net.core.somaxconn={wanted})" in text) if wanted else text == ""


def test_no_limit_is_named_where_there_is_none_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_limits, "_SOMAXCONN", tmp_path / "none")
    assert short_queue(10_000) == ""
