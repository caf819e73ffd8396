"""The pytest plugin: jobs that end with their test, and the clients' output in the report of a failed test.

It is loaded into every run of pytest where bringup is installed, and loads nothing of bringup until a test asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .job import LocalJob

_MARKER = "needs_namespaces: runs clients in network namespaces; skipped, with the reason, where there can be none"
_JOBS = pytest.StashKey["list[LocalJob]"]()
_REASON = pytest.StashKey["str | None"]()


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", _MARKER)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test with the mark `needs_namespaces` where there are none."""
    if item.get_closest_marker("needs_namespaces") is not None:
        _demand_namespaces(item.config)


@pytest.fixture
def bringup_namespaces(pytestconfig: pytest.Config) -> None:
    """Skips the test, with the reason, where this machine or user may make no network namespaces."""
    _demand_namespaces(pytestconfig)


@pytest.fixture
def local_job(request: pytest.FixtureRequest) -> Iterator[Callable[..., LocalJob]]:
    """Makes `LocalJob`s, from the same arguments, that end with the test. Those with namespaces may skip it.

    Where the test fails, the report has what each client has written.
    """
    from .job import LocalJob

    jobs = request.node.stash.setdefault(_JOBS, [])

    def make(num_clients: int, **arguments: Any) -> LocalJob:
        if arguments.get("namespaces"):
            _demand_namespaces(request.config)
        job = closing.enter_context(LocalJob(num_clients, **arguments))
        jobs.append(job)
        return job

    with ExitStack() as closing:
        yield make


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the clients' output to the report of a test that failed."""
    report = yield
    if report.failed:
        for job in item.stash.get(_JOBS, []):
            for client_id, client in sorted(job.clients.items()):
                report.sections.append((f"client {client_id}", client.describe()))
    return report


def _demand_namespaces(config: pytest.Config) -> None:
    """Skip where there are no namespaces; they are tried once in a run."""
    if _REASON not in config.stash:
        from .namespaces import why_unavailable

        config.stash[_REASON] = why_unavailable()
    reason = config.stash[_REASON]
    if reason is not None:
        pytest.skip(reason)
