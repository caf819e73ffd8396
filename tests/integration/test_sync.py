"""The blocking wrapper, in this process and in scripts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import bringup
from bringup.runtime import collectives
from bringup.runtime.blocking import SyncSystem
from bringup.runtime.client import client
from bringup.runtime.client.service_client import ServiceClient
from bringup.testing.fake import FakeJob
from bringup.testing.job import LocalJob, free_ports

ONE = {"jobs": "127.0.0.1:1", "client_id": 0}


def test_local_mode_needs_no_network() -> None:
    with bringup.sync.initialize("SIM", jobs=None) as system:
        assert (system.client_id, system.num_clients, system.job_name) == (0, 1, "localhost")
        assert system.jobs == ()
        assert system.devices[0].name == "/job:localhost/replica:0/task:0/device:SIM:0"
        array = np.arange(6, dtype=np.float32).reshape(2, 3)
        np.testing.assert_array_equal(system.all_reduce(array), array)
        system.barrier("alone")
        assert not system.core_ids.flags.writeable
        assert system.failure is None
        assert [span.name for span in system.timeline] == [
            "connect",
            "devices",
            "rendezvous",
            "ring",
            "merge",
            "commit",
        ]
        assert system.members[0].pid == os.getpid()
        assert repr(system) == "<SyncSystem client 0 of 1, 8 simulated SIM devices, ready>"
    with pytest.raises(bringup.NotInitializedError):
        bringup.current()


def test_the_facts_are_a_value_for_json() -> None:
    with bringup.sync.initialize("SIM", **ONE) as system:
        facts = json.loads(json.dumps(system.to_json(), allow_nan=False))
        assert (facts["job_id"], facts["client_id"], facts["num_clients"]) == (system.job_id, 0, 1)
        assert (facts["device_type"], facts["simulated"], facts["failure"]) == ("SIM", True, None)
        assert facts["core_ids"] == [device["core_id"] for device in facts["devices"]]
        assert facts["local_device_ids"] == [device["id"] for device in facts["devices"]]
        assert facts["devices"][3]["location"] == list(system.devices[3].location or ())
        assert facts["topology"]["mesh_shape"] == [2, 2, 1, 2]
        assert (facts["members"][0]["pid"], facts["members"][0]["phase"]) == (os.getpid(), "ready")
        assert [span["phase"] for span in facts["timeline"]] == [str(span.name) for span in system.timeline]
    with bringup.sync.initialize("CPU", **ONE) as system:
        assert not system.simulated
        assert "simulated" not in repr(system)


def test_one_system_at_a_time() -> None:
    with bringup.sync.initialize("SIM", **ONE) as first:
        with pytest.raises(bringup.AlreadyInitializedError, match="reset=True"):
            bringup.sync.initialize("SIM", **ONE)
        assert bringup.sync.current().job_id == first.job_id
        with bringup.sync.initialize("CPU", reset=True, **ONE) as second:
            assert bringup.current().device_type == "CPU"
            assert second.job_id != first.job_id
            with pytest.raises(bringup.NotInitializedError):
                first.barrier("gone")
        first.shutdown()


def test_who_waits_for_a_failure_is_told_that_there_was_none() -> None:
    with bringup.sync.initialize("SIM", **ONE) as system:
        told: list[object] = []
        watching = threading.Thread(target=lambda: told.append(system.wait_failed()))
        watching.start()
    watching.join(10)
    assert told == [None]
    assert system.wait_failed() is None
    assert [(member.phase, member.is_healthy) for member in system.members] == [("closed", True)]


def test_shutdown_can_be_called_again_and_from_two_threads() -> None:
    system = bringup.sync.initialize("SIM", **ONE)
    threads = [threading.Thread(target=system.shutdown) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    system.shutdown()


class Late(Exception):
    """What a signal handler of a program raises, as those of time limits do."""


@pytest.fixture
def alarm() -> Iterator[Callable[[], None]]:
    """Has `Late` raised in this thread in a moment."""

    def late(*ignored: object) -> None:
        raise Late

    previous = signal.signal(signal.SIGALRM, late)
    yield lambda: signal.setitimer(signal.ITIMER_REAL, 0.2) and None
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, previous)


def wait_for_others(system: SyncSystem, alarm: Callable[[], None]) -> None:
    alarm()
    system.barrier("b")


def save_when_told(system: SyncSystem, alarm: Callable[[], None]) -> None:
    alarm()
    step = 0
    while not system.reached_preemption_point(step):
        step += 1


def test_a_call_that_a_signal_handler_interrupts_is_none_any_more(alarm: Callable[[], None]) -> None:
    with FakeJob(2) as job:
        first, second = job.blocking_systems
        with pytest.raises(Late):
            wait_for_others(first, alarm)
        with pytest.raises(bringup.BarrierTimeoutError, match="client 0"):
            second.barrier("b", timeout=0.1)
        with pytest.raises(bringup.BarrierTimeoutError, match="client 1"):
            first.barrier("b", timeout=0.1)
        second.announce_preemption()
        with pytest.raises(Late):
            save_when_told(first, alarm)
        assert first._peer.preemption._held == {}


def test_a_meeting_at_the_end_that_a_signal_handler_interrupts_leaves_nothing_behind(
    alarm: Callable[[], None],
) -> None:
    with FakeJob(2, shutdown_timeout=10) as job:
        system = job.blocking_systems[0]
        with pytest.raises(Late), system:
            alarm()
        failure = job.blocking_systems[1].wait_failed()
        assert "client 0" in str(failure)
        assert "Late" in str(failure)


def test_inside_a_running_loop() -> None:
    async def notebook_cell() -> int:
        with bringup.sync.initialize("SIM", **ONE) as system:
            return len(system.devices)

    assert asyncio.run(notebook_cell()) == 8


def test_a_system_serves_any_loop() -> None:
    system = asyncio.run(_initialize())
    assert asyncio.run(_sum(system)) == 3
    asyncio.run(system.shutdown())


async def _initialize() -> bringup.System:
    return await bringup.initialize("SIM", **ONE)


async def _sum(system: bringup.System) -> int:
    return int(await system.all_reduce(3))


def test_arguments_are_checked_before_anything_is_started() -> None:
    before = threading.active_count()
    for wrong in (
        {"on_failure": "explode"},
        {"heartbeat_timeout": 0.1},
        {"heartbeat_timout": 1.0},
        {"jobs": "a:1,b:2"},
        {"local_device_ids": [0, 0]},
        {"local_device_ids": [0, True]},
        {"local_device_ids": "0"},
        {"local_device_ids": np.float64(0)},
        {"jobs": "/bns/x/0:1,/bns/x/1:1", "client_id": 0},
    ):
        with pytest.raises(bringup.ConfigurationError):
            bringup.sync.initialize("SIM", **wrong)
    with pytest.raises(bringup.DeviceNotFoundError):
        bringup.sync.initialize("TPU")
    assert threading.active_count() == before


def test_ids_are_whole_numbers_of_any_library() -> None:
    for ids in (np.int64(1), np.array([1]), [np.uint8(1)]):
        with bringup.sync.initialize("SIM", local_device_ids=ids, **ONE) as system:
            assert len(system.local_devices) == 1


def test_services_that_were_switched_off_say_so() -> None:
    with (
        bringup.sync.initialize("SIM", enable_coordination_service=False, **ONE) as system,
        pytest.raises(bringup.ConfigurationError, match="enable_coordination_service=False"),
    ):
        system.barrier("none")


def test_out_takes_the_result() -> None:
    with bringup.sync.initialize("SIM", **ONE) as system:
        out = np.zeros(3, np.int32)
        assert system.all_reduce(np.array([1, 2, 3], np.int32), out=out) is out
        assert out.tolist() == [1, 2, 3]
        with pytest.raises(bringup.ConfigurationError, match="alike"):
            system.all_reduce([1.5], out=out)
        with pytest.raises(bringup.ConfigurationError, match="numeric"):
            system.all_reduce(["text"])
        with pytest.raises(bringup.ConfigurationError, match="xor"):
            system.all_reduce([1], op="xor")


async def test_a_loop_does_not_copy_large_arrays_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    class Reduction(collectives._Reduction):
        def __init__(self, *arguments: Any) -> None:
            threads.append(threading.get_ident())
            super().__init__(*arguments)

        def result(self, totals: Any) -> Any:
            threads.append(threading.get_ident())
            return super().result(totals)

    monkeypatch.setattr(collectives, "_Reduction", Reduction)
    async with bringup.initialize("SIM", **ONE) as system:
        large = {"w": np.ones((1024, 512), np.float32).T, "b": [np.ones(3)]}
        total = await system.all_reduce(large, op="mean")
        assert (total["w"] == large["w"]).all()
        assert threading.get_ident() not in threads
        await system.all_reduce({"b": [np.ones(3)]})
        assert threads[2:] == [threading.get_ident()] * 2


@pytest.mark.parametrize("part", ["show_progress", "watch_loops"])
def test_what_a_job_can_live_without_ends_nothing_and_is_logged_where_it_raises(
    part: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> None:
        raise AssertionError("injected")

    monkeypatch.setattr(client if part == "show_progress" else ServiceClient, part, broken)
    with bringup.sync.initialize("SIM", **ONE) as system:
        assert system.all_reduce([1]).tolist() == [1]
    logged = [record for record in caplog.records if record.exc_info and "injected" in str(record.exc_info[1])]
    assert len(logged) == 1


def _python(code: str, **environment: str) -> subprocess.Popen[str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("BRINGUP_")}
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**inherited, **environment},
        cwd=os.path.dirname(sys.executable),
    )


def test_ctrl_c_interrupts_and_cleans_up() -> None:
    port = free_ports(1)[0]
    code = f"""
import os, socket, threading, bringup
from bringup.runtime.client.active import ACTIVE
def interrupt():
    while (client := ACTIVE.get()) is None or client.phase != "rendezvous":
        threading.Event().wait(0.01)
    os.kill(os.getpid(), {int(signal.SIGINT)})
threading.Thread(target=interrupt, daemon=True).start()
try:
    bringup.sync.initialize("SIM", jobs="127.0.0.1:{port},127.0.0.1:1", client_id=0)
except KeyboardInterrupt:
    socket.create_server(("127.0.0.1", {port})).close()
    print("interrupted", [t.name for t in threading.enumerate() if t.name.startswith("bringup")])
"""
    process = _python(code)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out.strip()) == (0, "interrupted []"), err


def test_an_interpreter_that_ends_without_shutdown_says_goodbye() -> None:
    with LocalJob(2) as job:
        job.initialize(device_type="SIM")
        failed = job.clients[0].call("wait_failed")
        job.clients[1].call("exit", status=3)
        told = failed.value()
        assert job.clients[1].wait() == 3
    assert told["attributes"]["client_id"] == 1
    assert "without shutdown()" in told["text"]


def test_an_exception_in_the_body_ends_the_job_for_all_with_its_cause() -> None:
    with LocalJob(2) as job:
        job.start([0])
        waiting = job.clients[0].call("initialize", device_type="SIM")
        code = """
import bringup
with bringup.sync.initialize("SIM") as system:
    raise ZeroDivisionError("step 12")
"""
        process = _python(code, BRINGUP_JOBS=",".join(job.jobs), BRINGUP_CLIENT_ID="1")
        waiting.value()
        told = job.clients[0].call("wait_failed").value()
        _, err = process.communicate(timeout=30)
    assert "ZeroDivisionError: step 12" in told["text"]
    assert "ZeroDivisionError: step 12" in err
    assert process.returncode == 1


def test_on_failure_exit_ends_the_process_with_status_70() -> None:
    with LocalJob(2) as job:
        job.start()
        calls = [
            job.clients[0].call("initialize", device_type="SIM"),
            job.clients[1].call("initialize", device_type="SIM", on_failure="exit"),
        ]
        for call in calls:
            call.value()
        # Stuck in a call that never looks at its loop.
        job.clients[1].call("block", seconds=60.0)
        job.clients[0].kill()
        assert job.clients[1].wait() == 70
        job.clients[1].close()
        assert "client 0" in job.clients[1].log.splitlines()[-1]


def initialized_by_six_threads_at_once(**arguments: bool) -> list[object]:
    """Return what each got, or was raised."""
    outcomes: list[object] = []
    start = threading.Barrier(6)

    def initialize() -> None:
        start.wait(10)
        try:
            outcomes.append(bringup.sync.initialize("SIM", **arguments, **ONE))
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            outcomes.append(error)

    threads = [threading.Thread(target=initialize) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    return outcomes


def test_one_of_many_threads_that_initialize_at_once_wins() -> None:
    outcomes = initialized_by_six_threads_at_once()
    winners = [outcome for outcome in outcomes if isinstance(outcome, bringup.sync.SyncSystem)]
    losers = [outcome for outcome in outcomes if isinstance(outcome, bringup.AlreadyInitializedError)]
    assert (len(outcomes), len(winners), len(losers)) == (6, 1, 5)
    winners[0].shutdown()


def test_threads_that_replace_one_another_leave_one_system() -> None:
    outcomes = initialized_by_six_threads_at_once(reset=True)
    assert len(outcomes) == 6
    expected = bringup.sync.SyncSystem | bringup.AlreadyInitializedError | bringup.NotInitializedError
    assert [outcome for outcome in outcomes if not isinstance(outcome, expected)] == []
    bringup.sync.current().shutdown()
    with pytest.raises(bringup.NotInitializedError):
        bringup.current()


def test_where_no_thread_can_be_started_the_next_call_is_free_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(bringup.BringupError, match=r"bringup-client-0 could not be started.*ulimit -u"):
            bringup.sync.initialize("SIM", **ONE)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with bringup.sync.initialize("SIM", **ONE) as system:
        assert system.num_clients == 1


def test_a_loop_ends_while_somebody_waits_for_a_failure() -> None:
    async def main() -> bringup.System:
        system = await bringup.initialize("SIM", **ONE)
        waiting = asyncio.ensure_future(system.wait_failed())
        await asyncio.sleep(0)
        assert not waiting.done()
        return system

    system = asyncio.run(main())
    asyncio.run(system.shutdown())


def test_barriers_take_names_and_times_that_make_sense() -> None:
    with bringup.sync.initialize("SIM", **ONE) as system:
        system.barrier("at once", timeout=0)
        for wrong in (7, "x" * 2000):
            with pytest.raises(bringup.ConfigurationError, match="barrier name"):
                system.barrier(wrong)  # type: ignore[arg-type]
        for wrong_time in (-1.0, float("nan")):
            with pytest.raises(bringup.ConfigurationError, match="timeout"):
                system.barrier("x", timeout=wrong_time)


def test_the_end_of_a_client_is_not_raised_from_other_calls() -> None:
    system = bringup.sync.initialize("SIM", **ONE)
    with pytest.raises(KeyboardInterrupt), system:
        raise KeyboardInterrupt
    with pytest.raises(bringup.NotInitializedError, match="KeyboardInterrupt"):
        system.barrier("later")


def test_sigterm_in_the_middle_of_a_call_says_goodbye() -> None:
    with LocalJob(2) as job:
        job.initialize(device_type="SIM")
        failed = job.clients[0].call("wait_failed")
        job.clients[1].call("barrier", name="never")
        job.clients[1].call("facts").value()
        job.clients[1].process.terminate()
        assert job.clients[1].wait() == -signal.SIGTERM
        told = failed.value()
    assert told["attributes"]["client_id"] == 1
    assert "SIGTERM" in told["text"]
    assert "Traceback" not in job.clients[1].log


def test_a_collective_that_fails_on_one_client_fails_the_job() -> None:
    with LocalJob(2) as job:
        job.initialize(device_type="SIM")
        failing = job.clients[1].call("all_reduce", array=[1] * 100_000, timeout=0.5)
        assert failing.error().error in ("TimeoutError", "NotInitializedError", "BringupError")
        outcome = job.clients[0].call("all_reduce", array=[1] * 100_000).answer()
        assert outcome.error == "PeerFailedError", outcome.text[:200]
        for client in job.clients.values():
            failure = client.call("wait_failed").value()
            assert (failure["error"], failure["attributes"]["client_id"]) == ("PeerFailedError", 1)


LATE = """
import bringup, threading
def work():
    threading.main_thread().join()
    with bringup.sync.initialize("SIM") as system:
        system.barrier("late")
        print(system)
threading.Thread(target=work).start()
"""


def test_a_thread_that_outlives_the_main_thread_may_initialize() -> None:
    """Before, it got "can't register atexit after shutdown", from the import of uvloop."""
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("<SyncSystem client 0 of 1"), done.stderr
