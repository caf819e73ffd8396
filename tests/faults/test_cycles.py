"""Jobs that come and go in the same processes leave threads, open files, sockets and memory where they were.

`BRINGUP_TEST_CYCLES=1000 pytest tests/faults/test_cycles.py -s` runs a thousand of them, and shows the figures.
"""

from __future__ import annotations

import os

import pytest

from bringup.testing.job import LocalJob

from .assertions import restart

CYCLES = int(os.environ.get("BRINGUP_TEST_CYCLES", "40"))
WARM_UP = 20
# An allocator takes memory in steps: one of 5 MiB has been seen beside a load.
GROWTH_KIB_MAX = 8192
# What gRPC leaves by itself: a server and a channel that come and go, without anything of this package, 2.3 of them.
GROWTH_KIB_PER_CYCLE_MAX = 6


def cycle(job: LocalJob, count: int) -> None:
    for _ in range(count):
        job.initialize(device_type="SIM")
        for call in job.call("shutdown"):
            call.value()


def memory(job: LocalJob) -> list[int]:
    return [call.value() for call in job.call("memory")]


@pytest.mark.timeout(600)
def test_a_job_of_four_comes_and_goes(capsys: pytest.CaptureFixture[str]) -> None:
    with LocalJob(4) as job:
        job.start()
        resources = job.resources()
        cycle(job, WARM_UP)
        before = memory(job)
        cycle(job, CYCLES)
        beyond, after = job.resources_beyond(resources), memory(job)
        with capsys.disabled():
            print(f"\n{CYCLES} cycles: before {resources}, more than that after {beyond}; KiB {before} -> {after}")
        assert beyond == [{}] * 4
        for kib, now in zip(before, after, strict=True):
            assert now - kib < GROWTH_KIB_MAX + GROWTH_KIB_PER_CYCLE_MAX * CYCLES, (
                f"{kib} KiB before, {now} KiB after {CYCLES} cycles"
            )


@pytest.mark.parametrize(("victim", "size", "group_size"), [(0, 3, 0), (2, 3, 0), (2, 4, 2)])
def test_a_job_that_fails_comes_again(victim: int, size: int, group_size: int) -> None:
    """What is left of a job that failed must not stay either, whoever it was that died."""
    survivors = [client_id for client_id in range(size) if client_id != victim]
    with LocalJob(size) as job:
        job.start()
        resources = job.resources()
        for _ in range(4):
            job.initialize(device_type="SIM", group_size=group_size)
            failed = job.call("wait_failed", survivors)
            job.clients[victim].kill()
            for call in failed:
                call.value()
            restart(job, [victim])
        job.initialize(device_type="SIM")
        for call in job.call("shutdown"):
            call.value()
        beyond = job.resources_beyond(resources)
        assert [beyond[client_id] for client_id in survivors] == [{}] * (size - 1)
