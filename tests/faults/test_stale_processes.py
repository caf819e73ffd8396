"""A process of an earlier job that goes on when another job has its addresses: it is refused, and disturbs nobody."""

from __future__ import annotations

import time

import pytest

from bringup.testing.job import LocalJob

from .assertions import check_works, failure_of

FENCED = 30.0
"""Seconds; what it hears does not wait for a heartbeat."""


@pytest.mark.parametrize("stale", [0, 1])
def test_a_process_of_an_earlier_job_is_fenced(stale: int) -> None:
    """It was stopped as the others died; it has the token of the later job, too, and none of its ports."""
    with LocalJob(3) as former, LocalJob(3) as later:
        former.start()
        former.initialize(device_type="SIM")
        former.clients[1].call("set_key", key="of", value="the former job").value()
        failing = former.clients[stale].call("wait_failed")
        former.clients[stale].stop()
        former.clients[stale].wait_stopped()
        for client_id in {0, 1, 2} - {stale}:
            former.clients[client_id].kill()
            former.clients[client_id].wait()
        if stale:
            later.jobs = former.jobs
        else:
            # It holds its port, which the other clients may take for that of the later job.
            later.jobs = (later.jobs[0], *former.jobs[1:])
        later.start()
        later.initialize(device_type="SIM")
        check_works(later)
        resumed = time.monotonic()
        former.clients[stale].resume()
        writing = former.clients[stale].call("set_key", key="of", value="a ghost")
        assert failure_of(failing).at - resumed < FENCED
        writing.error()
        check_works(later)
        later.clients[1].call("set_key", key="of", value="the later job").value()
        assert later.clients[2].call("get_key", key="of").value() == "the later job"
        for call in later.call("shutdown"):
            call.value()
