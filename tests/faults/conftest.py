"""Jobs that the tests of a module share: what survives a fault is in the next test's job, as it is in earnest.

Only who has died is started anew, and is forked where it runs Python: starts are what these tests would else spend most
of their time on. Interpreters end alike in both; each way for a program to end is tested of fresh ones, too.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from bringup.testing.job import LocalJob
from bringup.testing.namespaces import NamespacesUnavailableError

NUM_CLIENTS = 3
RESET_TIMEOUT = 5.0

_HAS_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[_HAS_FAILED] = True
        job = getattr(item, "funcargs", {}).get("job")
        for client_id, client in sorted(job.clients.items()) if isinstance(job, LocalJob) else ():
            report.sections.append((f"client {client_id}", client.describe()))
    return report


@pytest.fixture(scope="module")
def _jobs() -> Iterator[dict[bool, LocalJob]]:
    jobs: dict[bool, LocalJob] = {}
    yield jobs
    for job in jobs.values():
        job.close()


@pytest.fixture
def job(_jobs: dict[bool, LocalJob], request: pytest.FixtureRequest) -> Iterator[LocalJob]:
    """Three clients, started and in no job.

    Where the module says `NAMESPACES = True`, they can be cut off; where it says `SIZE = n`, there are as many.
    """
    namespaces = getattr(request.module, "NAMESPACES", False)
    size = getattr(request.module, "SIZE", NUM_CLIENTS)
    job = _jobs.setdefault(namespaces, LocalJob(size, namespaces=namespaces, fork=True))
    try:
        revive(job)
    except NamespacesUnavailableError as error:
        pytest.skip(str(error))
    yield job
    if request.node.stash.get(_HAS_FAILED, False):
        _jobs.pop(namespaces).close()


def revive(job: LocalJob) -> None:
    """Start whoever has ended, or does not answer, or runs a program of the last test's."""
    resets = {
        client_id: client.call("reset")
        for client_id, client in job.clients.items()
        if client.command is None and client.process.poll() is None
    }
    fit = [client_id for client_id, call in resets.items() if call.is_answered(RESET_TIMEOUT)]
    job.start([client_id for client_id in range(job.num_clients) if client_id not in fit])
