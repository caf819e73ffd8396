"""Killed processes: every survivor is told at once who died, in which phase, whatever it was waiting for."""

from __future__ import annotations

import time

import pytest

from bringup.testing.job import LocalJob

from .assertions import all_but, check_died, check_works, failure_of, restart

DIED = -9


@pytest.mark.parametrize("victim", [0, 1])
def test_killed_before_anybody_knew_it_is_replaced(job: LocalJob, victim: int) -> None:
    """A client that dies while it looks for the coordinator, and a coordinator that nobody has found yet."""
    job.clients[victim].call("signal_at", signal="SIGKILL", phase="connect").value()
    job.clients[victim].call("initialize", device_type="SIM")
    assert job.clients[victim].wait() == DIED
    others = job.call("initialize", all_but(victim), device_type="SIM")
    job.start([victim])[0].call("initialize", device_type="SIM").value()
    for call in others:
        call.value()
    check_works(job)


@pytest.mark.parametrize("victim", [0, 1])
def test_killed_in_the_rendezvous(job: LocalJob, victim: int) -> None:
    calls = job.call("initialize", [0, 1], device_type="SIM")
    for reached in job.call("reach", [0, 1], phases=["rendezvous"]):
        reached.value()
    killed_at = time.monotonic()
    job.clients[victim].kill()
    check_died(calls[1 - victim].error(), victim, killed_at, "rendezvous")


@pytest.mark.parametrize(
    ("phase", "victim"), [("devices", 1), ("ring", 1), ("merge", 0), ("merge", 1), ("commit", 0), ("commit", 1)]
)
def test_killed_as_it_gets_to_a_phase_of_bring_up_and_the_job_comes_up_again(
    job: LocalJob, phase: str, victim: int
) -> None:
    """The last client begins when the victim's devices are up, or are not to be, as the phase would be another."""
    first, last = all_but(victim)
    if phase == "devices":
        job.start([victim], BRINGUP_SIM_START_SECONDS="60")
    job.clients[victim].call("signal_at", signal="SIGKILL", phase=phase).value()
    calls = job.call("initialize", [victim, first], device_type="SIM")
    if phase != "devices":
        job.clients[victim].call("reach", phases=["rendezvous"], done=["devices"]).value()
    calls += job.call("initialize", [last], device_type="SIM")
    assert job.clients[victim].wait() == DIED
    killed_at = time.monotonic()
    for call in calls[1:]:
        check_died(call.error(), victim, killed_at)
    job.start([victim])
    job.initialize(device_type="SIM")
    check_works(job)


@pytest.mark.parametrize(("victim", "slow"), [(0, 1), (1, 0), (1, 1)])
def test_killed_while_devices_come_up(victim: int, slow: int) -> None:
    with LocalJob(3, environment={"BRINGUP_SIM_FAULT": f"{slow}:slow:60"}) as job:
        job.start()
        calls = job.call("initialize", device_type="SIM")
        for client_id in range(3):
            phases = ["devices"] if client_id == slow else ["merge"]
            job.clients[client_id].call("reach", phases=phases).value()
        killed_at = time.monotonic()
        job.clients[victim].kill()
        for client_id in all_but(victim):
            check_died(calls[client_id].error(), victim, killed_at)


@pytest.mark.parametrize("victim", [0, 2])
def test_killed_while_the_ring_is_linked(job: LocalJob, victim: int) -> None:
    """Client 1 stops before it links, so that its neighbours wait for it; when it goes on it hears of the death."""
    job.clients[1].call("signal_at", signal="SIGSTOP", phase="ring").value()
    calls = job.call("initialize", [0, 1], device_type="SIM")
    job.clients[1].call("reach", phases=["rendezvous"], done=["devices"]).value()
    calls += job.call("initialize", [2], device_type="SIM")
    for reached in job.call("reach", [0, 2], phases=["ring"]):
        reached.value()
    job.clients[1].wait_stopped()
    killed_at = time.monotonic()
    job.clients[victim].kill()
    check_died(calls[2 - victim].error(), victim, killed_at)
    job.clients[1].resume()
    check_died(calls[1].error(), victim, killed_at)


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_killed_when_up_and_idle_while_others_wait_in_every_way(job: LocalJob, victim: int) -> None:
    survivors = all_but(victim)
    job.initialize(device_type="SIM")
    failed = job.call("wait_failed", survivors)
    waiting = [*job.call("barrier", survivors, name="b"), *job.call("all_reduce", survivors, array=[1])]
    for call in job.call("facts", survivors):
        call.value()
    killed_at = time.monotonic()
    job.clients[victim].kill()
    for failure in [*map(failure_of, failed), *(call.error() for call in waiting)]:
        check_died(failure, victim, killed_at, "ready")
    # Later calls say the same at once, and shutting down is as quick.
    for later in job.call("barrier", survivors, name="later"):
        check_died(later.error(), victim, killed_at)
    for gone in job.call("shutdown", survivors):
        check_died(gone.error(), victim, killed_at)
    for pardoned in job.call("shutdown", survivors, raise_on_failure=False):
        assert pardoned.value() is None


@pytest.mark.parametrize("victim", [0, 1])
def test_killed_in_a_barrier_that_it_waits_at_itself(job: LocalJob, victim: int) -> None:
    """Of three, one does not come: the victim's own arrival is no excuse for the barrier to open."""
    waits, stays_away = all_but(victim)
    job.initialize(device_type="SIM")
    entered = job.call("barrier", [victim, waits], name="b")
    job.clients[victim].call("facts").value()
    failed = job.clients[stays_away].call("wait_failed")
    killed_at = time.monotonic()
    job.clients[victim].kill()
    check_died(entered[1].error(), victim, killed_at)
    check_died(failure_of(failed), victim, killed_at)


@pytest.mark.parametrize(
    ("victim", "size", "message"),
    [(0, 1, 0), (0, 1, 1), (2, 1, 0), (0, 100_000, 2), (0, 100_000, 5), (2, 100_000, 1), (2, 100_000, 4)],
)
def test_killed_in_the_middle_of_a_collective(job: LocalJob, victim: int, size: int, message: int) -> None:
    """Whoever returns has the right result, and nobody waits. A small array goes round whole, a large one in chunks."""
    job.initialize(device_type="SIM")
    job.clients[victim].call("signal_at", signal="SIGKILL", send=message).value()
    calls = job.call("all_reduce", range(3), array=[1] * size)
    assert job.clients[victim].wait() == DIED
    killed_at = time.monotonic()
    for client_id in all_but(victim):
        answer = calls[client_id].answer()
        if answer.error is None:
            assert answer.value == [3] * size
        else:
            check_died(answer, victim, killed_at, "ready")
        check_died(failure_of(job.clients[client_id].call("wait_failed")), victim, killed_at)


@pytest.mark.parametrize("victim", [0, 1])
def test_killed_while_shutting_down_is_no_failure_but_of_the_coordinator(job: LocalJob, victim: int) -> None:
    job.initialize(device_type="SIM")
    job.clients[victim].call("shutdown")
    job.clients[victim].call("reach", phases=["leaving"]).value()
    job.clients[victim].kill()
    killed_at = time.monotonic()
    for call in job.call("shutdown", all_but(victim)):
        if victim == 0:
            check_died(call.error(), victim, killed_at)
        else:
            assert call.value() is None


def test_two_that_are_killed_together_are_both_named() -> None:
    """Where their ends are seen close together, which a machine with much else to do may keep them from."""
    failures = []
    with LocalJob(4) as job:
        for _ in range(5):
            job.initialize(device_type="SIM")
            failed = job.call("wait_failed", [0, 2])
            for victim in (1, 3):
                job.clients[victim].stop()  # so that neither has time to say anything of the other
            for victim in (1, 3):
                job.clients[victim].process.kill()
            failures = [failure_of(call) for call in failed]
            assert {one.attributes["client_id"] for one in failures} < {1, 3}
            if all(f"failed with it: {4 - one.attributes['client_id']}" in one.text for one in failures):
                return
            restart(job, [1, 3])
    raise AssertionError(f"never were both of them named: {failures}")


def test_all_workers_killed_at_once_leave_the_coordinator_with_an_answer(job: LocalJob) -> None:
    job.initialize(device_type="SIM")
    failed = job.clients[0].call("wait_failed")
    for victim in (1, 2):
        job.clients[victim].process.kill()
    assert failure_of(failed).error in ("PeerFailedError", "CoordinatorLostError")
    for victim in (1, 2):
        assert job.clients[victim].wait() == DIED


@pytest.mark.parametrize("victim", [0, 2])
def test_a_restarted_client_is_not_taken_for_the_one_that_died(job: LocalJob, victim: int) -> None:
    """The job has failed. Once the others have begun anew, too, it comes up, as another."""
    (before, *_) = job.initialize(device_type="SIM")
    survivors = all_but(victim)
    failures = job.call("wait_failed", survivors)
    killed_at = time.monotonic()
    job.clients[victim].kill()
    for call in failures:
        check_died(failure_of(call), victim, killed_at)
    restart(job, [victim])
    again = job.clients[victim].call("initialize", device_type="SIM")
    facts = [call.value() for call in (again, *job.call("initialize", survivors, device_type="SIM"))]
    assert len({one["job_id"] for one in facts} | {before["job_id"]}) == 2
    check_works(job)
