"""The thread of a backend: one call at a time, time-outs, cancellation, interrupts, and its end."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Sequence

import pytest

from bringup.devices.base import BackendConfig, Health, LocalDevice
from bringup.devices.sim.backend import SimBackend
from bringup.errors import (
    DeviceInitializationError,
    DeviceTimeoutError,
)

from ...lib.backend_doubles import LONG, SHORT, Backend, Gate, failing, make, threads_end, threads_under_test

pytestmark = [pytest.mark.every_loop, pytest.mark.usefixtures("no_error_goes_unseen")]


async def test_the_thread_is_made_by_the_first_call() -> None:
    backend = Backend()
    thread = make(backend)
    assert threads_under_test() == []
    assert await thread.close(LONG)
    assert await thread.close(LONG)
    assert backend.calls == []


async def test_a_stop_that_hangs_is_interrupted() -> None:
    gate = Gate()

    class Stubborn(Backend):
        def interrupt(self) -> None:
            gate.opened.set()

    thread = make(Stubborn(stop=gate))
    await thread.start(LONG)
    assert not await thread.close(SHORT)
    assert thread.abandoned
    assert gate.opened.is_set()


async def test_a_call_that_hangs_is_reported_with_the_place() -> None:
    gate = Gate([LocalDevice("test")])
    thread = make(Backend(start=gate))
    starting = asyncio.create_task(thread.start(0.5))
    await gate.wait_entered()
    with pytest.raises(DeviceTimeoutError) as caught:
        await starting
    assert re.search(
        r"was abandoned in start \([\w.]*backend_doubles:\d+\), _call .*, wait \(threading:\d+\)\. Check",
        str(caught.value),
    )
    # Nothing of it keeps frames alive: the error may be kept for long.
    assert caught.value.__cause__ is None
    gate.opened.set()


async def test_two_may_close_at_once() -> None:
    thread = make(Backend())
    await thread.start(LONG)
    assert await asyncio.gather(thread.close(LONG), thread.close(LONG)) == [True, True]
    assert threads_under_test() == []


async def test_a_closed_thread_refuses_calls() -> None:
    thread = make(Backend())
    await thread.start(LONG)
    await thread.close(LONG)
    with pytest.raises(DeviceInitializationError, match="check_health was refused, because it is closed"):
        await thread.check_health(LONG)
    assert threads_under_test() == []


async def test_calls_made_at_once_run_one_after_the_other() -> None:
    backend = Backend()
    thread = make(backend)
    results = await asyncio.gather(*(thread.check_health(LONG) for _ in range(50)))
    assert results == [Health(ok=True)] * 50
    assert len(backend.threads) == 1
    await thread.close(LONG)


async def test_the_loop_runs_on_during_a_call() -> None:
    gate = Gate([LocalDevice("test")])
    thread = make(Backend(start=gate))
    starting = asyncio.create_task(thread.start(LONG))
    await gate.wait_entered()
    assert not starting.done()
    gate.opened.set()
    assert await starting == (LocalDevice("test"),)
    await thread.close(LONG)


async def test_two_backends_start_side_by_side() -> None:
    barrier = threading.Barrier(2)

    def meet() -> list[LocalDevice]:
        barrier.wait(LONG)
        return [LocalDevice("test")]

    threads = [make(Backend(start=meet)) for _ in range(2)]
    await asyncio.gather(*(thread.start(LONG) for thread in threads))
    assert await asyncio.gather(*(thread.close(LONG) for thread in threads)) == [True, True]


async def test_a_call_that_does_not_return_is_reported_and_abandoned(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate([LocalDevice("test")])
    backend = Backend(start=gate)
    thread = make(backend)
    with pytest.raises(DeviceTimeoutError) as caught:
        await thread.start(SHORT)
    message = str(caught.value)
    assert "the TEST backend of client 7 on host " in message
    assert "start did not return within 0.02 s; its thread backend-under-test was abandoned" in message
    assert caught.value.client_id == 7
    assert isinstance(caught.value, TimeoutError)
    assert thread.abandoned
    with pytest.raises(DeviceTimeoutError, match="check_health was refused, because start did not return"):
        await thread.check_health(LONG)
    assert not await thread.close(LONG)
    # It returns after all: its devices must not stay up.
    gate.opened.set()
    await threads_end()
    assert backend.calls == ["start", "stop"]
    assert [record.message.endswith("thread backend-under-test is abandoned") for record in caplog.records] == [True]


async def test_calls_behind_a_hung_one_fail_with_it() -> None:
    gate = Gate(Health(ok=True))
    backend = Backend(check_health=gate)
    thread = make(backend)
    first = asyncio.create_task(thread.check_health(LONG))
    await gate.wait_entered()
    second = asyncio.create_task(thread.check_health(LONG))
    with pytest.raises(DeviceTimeoutError, match=r"start did not return within .* \(it waited behind check_health\)"):
        await thread.start(SHORT)
    for task in (first, second):
        with pytest.raises(DeviceTimeoutError, match="was given up, because start did not return"):
            await task
    gate.opened.set()
    await threads_end()
    assert backend.calls == ["check_health"]


async def test_a_hung_thread_that_is_closed_is_abandoned_and_named(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate(Health(ok=True))
    thread = make(Backend(check_health=gate))
    checking = asyncio.create_task(thread.check_health(LONG))
    await gate.wait_entered()
    assert not await thread.close(SHORT)
    assert thread.abandoned
    with pytest.raises(DeviceTimeoutError, match="check_health was given up"):
        await checking
    assert not await thread.close(LONG)
    gate.opened.set()
    await threads_end()
    (record,) = caplog.records
    assert "check_health did not return within 0.02 s of closing; thread backend-under-test" in record.message


async def test_close_waits_for_the_running_call_and_drops_those_behind() -> None:
    gate = Gate([LocalDevice("test")])
    backend = Backend(start=gate)
    thread = make(backend)
    starting = asyncio.create_task(thread.start(LONG))
    await gate.wait_entered()
    checking = asyncio.create_task(thread.check_health(LONG))
    closing = asyncio.create_task(thread.close(LONG))
    await asyncio.sleep(0)
    gate.opened.set()
    assert await closing
    assert await starting == (LocalDevice("test"),)
    with pytest.raises(DeviceInitializationError, match="check_health was given up, because it is closed"):
        await checking
    assert threads_under_test() == []
    assert backend.calls == ["start", "stop"]


async def test_a_cancelled_start_ends_in_the_background_and_is_stopped() -> None:
    gate = Gate([LocalDevice("test")])
    backend = Backend(start=gate)
    thread = make(backend)
    starting = asyncio.create_task(thread.start(LONG))
    await gate.wait_entered()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    with pytest.raises(DeviceInitializationError, match="check_health was refused, because start was cancelled"):
        await thread.check_health(LONG)
    gate.opened.set()
    assert await thread.close(LONG)
    assert threads_under_test() == []
    assert backend.calls == ["start", "stop"]


async def test_a_cancelled_start_needs_no_close() -> None:
    gate = Gate([LocalDevice("test")])
    backend = Backend(start=gate)
    starting = asyncio.create_task(make(backend).start(LONG))
    await gate.wait_entered()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    gate.opened.set()
    await threads_end()
    assert backend.calls == ["start", "stop"]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_start_that_is_cancelled_as_it_ends_is_stopped(fails: bool) -> None:
    gate, behind = Gate([LocalDevice("test")]), Gate(Health(ok=True))
    backend = Backend(start=(lambda: (gate(), 1 / 0)) if fails else gate, check_health=behind)
    thread = make(backend)
    starting = asyncio.create_task(thread.start(LONG))
    checking = asyncio.create_task(thread.check_health(LONG))
    await gate.wait_entered()
    gate.opened.set()
    # The loop stands still meanwhile, so the result of start lies in its queue when the next call begins.
    assert behind.entered.wait(LONG)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    behind.opened.set()
    assert await checking == Health(ok=True)
    assert await thread.close(LONG)
    assert backend.calls == ["start", "check_health", "stop"]


async def test_an_error_after_cancellation_is_not_lost_noisily() -> None:
    gate = Gate()
    backend = Backend(start=lambda: (gate(), 1 / 0))
    thread = make(backend)
    starting = asyncio.create_task(thread.start(LONG))
    await gate.wait_entered()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    gate.opened.set()
    assert await thread.close(LONG)
    assert backend.calls == ["start", "stop"]


def test_a_loop_that_was_closed_meanwhile_ends_the_thread() -> None:
    gate = Gate([LocalDevice("test")])
    backend = Backend(start=gate)
    thread = make(backend)
    loop = asyncio.new_event_loop()
    starting = loop.create_task(thread.start(LONG))
    loop.run_until_complete(gate.wait_entered())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    gate.opened.set()
    assert backend.stopped.wait(LONG)
    for own in backend.threads:
        own.join(LONG)
        assert not own.is_alive()
    assert backend.calls == ["start", "stop"]
    # The task of a dead loop: closing its coroutine is all that is left to do.
    starting.get_coro().close()
    starting._log_destroy_pending = False


class SlowSim(SimBackend):
    """Takes an hour to start, and says when it began."""

    def __init__(self) -> None:
        super().__init__(BackendConfig(environment={"BRINGUP_SIM_START_SECONDS": "3600"}))
        self.entered = threading.Event()

    def start(self) -> Sequence[LocalDevice]:
        self.entered.set()
        return super().start()


async def test_a_backend_that_can_be_interrupted_is_when_it_is_given_up() -> None:
    thread = make(SlowSim())
    with pytest.raises(DeviceTimeoutError):
        await thread.start(SHORT)


async def test_a_backend_that_can_be_interrupted_is_when_its_start_is_cancelled() -> None:
    backend = SlowSim()
    thread = make(backend)
    starting = asyncio.create_task(thread.start(LONG))
    assert await asyncio.to_thread(backend.entered.wait, LONG)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert await thread.close(LONG)
    assert threads_under_test() == []


async def test_a_backend_that_can_be_interrupted_is_when_it_is_closed() -> None:
    backend = SlowSim()
    thread = make(backend)
    starting = asyncio.create_task(thread.start(LONG))
    assert await asyncio.to_thread(backend.entered.wait, LONG)
    assert await thread.close(LONG)
    with pytest.raises(DeviceInitializationError, match="stopped during the 3600 s"):
        await starting


async def test_a_failing_interrupt_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate([LocalDevice("test")])

    class Odd(Backend):
        def interrupt(self) -> None:
            gate.opened.set()
            raise OSError("cannot")

    thread = make(Odd(start=gate))
    starting = asyncio.create_task(thread.start(LONG))
    await gate.wait_entered()
    assert await thread.close(LONG)
    await starting
    assert "interrupting start failed" in caplog.text


async def test_a_system_without_threads_to_spare_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", lambda _: failing(RuntimeError("no more"))())
    thread = make(Backend())
    with pytest.raises(DeviceInitializationError, match="no thread could be started"):
        await thread.check_health(LONG)
    monkeypatch.undo()
    assert await thread.check_health(LONG)
    assert await thread.close(LONG)


async def test_many_threads_come_and_go() -> None:
    async def cycle() -> None:
        thread = make(Backend())
        await thread.start(LONG)
        await thread.check_health(LONG)
        assert await thread.close(LONG)

    for _ in range(20):
        await asyncio.gather(*(cycle() for _ in range(10)))
        assert threads_under_test() == []


def test_a_hung_thread_does_not_hold_up_the_end_of_the_process() -> None:
    code = """
        import asyncio
        from bringup.devices.base import BackendConfig
        from bringup.devices.sim.backend import SimBackend
        from bringup.devices.thread import BackendThread
        from bringup.errors import DeviceTimeoutError

        async def main():
            thread = BackendThread(SimBackend(BackendConfig(environment={"BRINGUP_SIM_FAULT": "0:hang"})), name="hung")
            try:
                await thread.start(0.1)
            except DeviceTimeoutError:
                print("reported", await thread.close(5))

        asyncio.run(main())
    """
    command = [sys.executable, "-P", "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "reported False\n"
    assert "thread hung is abandoned" in done.stderr
