"""The thread of a backend: results, errors, time-outs, cancellation, and its end."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from bringup.devices.base import BackendConfig, Discovery, Health, LocalDevice
from bringup.devices.sim.backend import SimBackend
from bringup.devices.thread import BackendThread
from bringup.errors import ConfigurationError, DeviceInitializationError, DeviceNotFoundError, DeviceTimeoutError

try:
    import uvloop
except ImportError:
    uvloop = None

# Longer than anything here takes, and short enough to end a test that hangs.
LONG = 60.0
# For calls that are meant to time out.
SHORT = 0.02


class Backend:
    """Does in each call what it was told to, and notes who called what."""

    device_type = "TEST"
    simulated = True

    def __init__(self, **behaviour: Callable[[], Any]) -> None:
        self.behaviour = behaviour
        self.calls: list[str] = []
        self.threads: set[threading.Thread] = set()
        self.overlap = threading.Lock()
        self.stopped = threading.Event()

    def _call(self, what: str, default: Any) -> Any:
        assert self.overlap.acquire(blocking=False), "two calls at once"
        try:
            self.calls.append(what)
            self.threads.add(threading.current_thread())
            return self.behaviour[what]() if what in self.behaviour else default
        finally:
            self.overlap.release()

    def discover(self) -> Discovery:
        return self._call("discover", Discovery(present=True, detail="here"))

    def start(self) -> Sequence[LocalDevice]:
        return self._call("start", [LocalDevice("test")])

    def check_health(self) -> Health:
        return self._call("check_health", Health(ok=True))

    def stop(self) -> None:
        try:
            self._call("stop", None)
        finally:
            self.stopped.set()


class Gate:
    """A blocking call: says when it was entered, and returns when it is opened."""

    def __init__(self, result: Any = None) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()
        self.result = result

    def __call__(self) -> Any:
        self.entered.set()
        assert self.opened.wait(LONG)
        return self.result

    async def wait_entered(self) -> None:
        assert await asyncio.to_thread(self.entered.wait, LONG)


def failing(error: BaseException) -> Callable[[], Any]:
    def call() -> Any:
        raise error

    return call


def make(backend: Any, client_id: int | None = 7) -> BackendThread:
    return BackendThread(backend, name="backend-under-test", client_id=client_id)


Run = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]

LOOPS = {"asyncio": asyncio.new_event_loop} | ({"uvloop": uvloop.new_event_loop} if uvloop else {})


@pytest.fixture(params=sorted(LOOPS))
def run(request: pytest.FixtureRequest) -> Run:
    """Return a function that runs a test on a loop, and sees that neither a thread nor a complaint is left."""

    def do(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        complaints: list[dict[str, Any]] = []
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.get_loop().set_exception_handler(lambda _, context: complaints.append(context))
            runner.run(test())
            # A future whose error nobody saw complains when it is collected.
            gc.collect()
        for thread in threads_under_test():
            thread.join(LONG)
            assert not thread.is_alive()
        assert not complaints

    return do


def threads_under_test() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "backend-under-test"]


def test_calls_run_in_one_daemon_thread_and_give_results(run: Run) -> None:
    async def test() -> None:
        backend = Backend()
        thread = make(backend)
        assert await thread.start(LONG) == (LocalDevice("test"),)
        assert await thread.check_health(LONG) == Health(ok=True)
        (own,) = backend.threads
        assert own.daemon
        assert own.name == "backend-under-test"
        assert own is not threading.current_thread()
        assert not thread.abandoned
        assert await thread.close(LONG)
        assert threads_under_test() == []
        assert backend.calls == ["start", "check_health", "stop"]

    run(test)


def test_the_thread_is_made_by_the_first_call(run: Run) -> None:
    async def test() -> None:
        backend = Backend()
        thread = make(backend)
        assert threads_under_test() == []
        assert await thread.close(LONG)
        assert await thread.close(LONG)
        assert backend.calls == []

    run(test)


def test_close_stops_what_was_started(run: Run) -> None:
    async def test() -> None:
        backend = Backend()
        thread = make(backend)
        await thread.start(LONG)
        assert await thread.close(LONG)
        assert threads_under_test() == []
        assert backend.calls == ["start", "stop"]
        assert await thread.close(LONG)
        assert backend.calls == ["start", "stop"]

    run(test)


def test_close_does_not_stop_what_was_never_started(run: Run) -> None:
    async def test() -> None:
        backend = Backend()
        thread = make(backend)
        await thread.check_health(LONG)
        assert await thread.close(LONG)
        assert backend.calls == ["check_health"]

    run(test)


def test_a_stop_that_hangs_is_interrupted(run: Run) -> None:
    gate = Gate()

    class Stubborn(Backend):
        def interrupt(self) -> None:
            gate.opened.set()

    async def test() -> None:
        thread = make(Stubborn(stop=gate))
        await thread.start(LONG)
        assert not await thread.close(SHORT)
        assert thread.abandoned

    run(test)
    assert gate.opened.is_set()


class Unopened(Backend):
    """Is of the type that it was opened as."""

    def __init__(self, **behaviour: Callable[[], Any]) -> None:
        super().__init__(**behaviour)
        self.device_type = "preferred"
        self.simulated = False

    def open(self) -> None:
        self._call("open", None)
        self.device_type, self.simulated = "FOUND", True


def test_what_a_backend_is_may_be_found_out_in_its_thread(run: Run) -> None:
    async def test() -> None:
        backend = Unopened(start=failing(OSError("no")))
        thread = make(backend)
        assert thread.device_type == "preferred"
        await thread.open(LONG)
        assert (thread.device_type, thread.simulated) == ("FOUND", True)
        with pytest.raises(DeviceInitializationError, match=r"the FOUND backend of client 7 on host .*start raised"):
            await thread.start(LONG)
        assert await thread.close(LONG)
        assert backend.calls == ["open", "start", "stop"]
        assert len(backend.threads) == 1

    run(test)


def test_one_that_needs_no_opening_is_not_opened(run: Run) -> None:
    async def test() -> None:
        backend = Backend()
        thread = make(backend)
        await thread.open(LONG)
        assert (thread.device_type, thread.simulated) == ("TEST", True)
        assert await thread.close(LONG)
        assert backend.calls == []

    run(test)


def test_an_opening_that_fails_or_hangs_is_reported(run: Run) -> None:
    gate = Gate()

    async def test() -> None:
        odd = ConfigurationError("odd")
        thread = make(Unopened(open=failing(odd)))
        with pytest.raises(ConfigurationError) as caught:
            await thread.open(LONG)
        assert caught.value is odd
        with pytest.raises(DeviceInitializationError, match="check_health was refused, because it could not be opened"):
            await thread.check_health(LONG)
        with pytest.raises(ConfigurationError) as caught:
            await thread.start(LONG)
        assert caught.value is odd
        # It ends by itself: `run` waits for it.
        thread = make(Unopened(open=gate))
        with pytest.raises(
            DeviceTimeoutError, match=r"the preferred backend of client 7 on host .*: open did not return"
        ):
            await thread.open(SHORT)
        gate.opened.set()

    run(test)


@pytest.mark.parametrize("start", [list, failing(DeviceNotFoundError("none here"))])
def test_a_client_may_be_allowed_to_have_no_devices(
    run: Run, start: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        backend = Backend(start=start, check_health=failing(OSError("not started")))
        thread = BackendThread(backend, name="backend-under-test", client_id=7, allow_empty=True)
        assert await thread.start(LONG) == ()
        assert await thread.check_health(LONG) == Health(ok=True, detail="no devices")
        assert await thread.close(LONG)
        assert backend.calls == ["start", "stop"]

    with caplog.at_level(logging.INFO):
        run(test)
    assert "the TEST backend of client 7 on host " in caplog.text
    assert "has no devices: " in caplog.text


def test_other_failures_of_a_client_that_may_be_empty_are_failures(run: Run) -> None:
    async def test() -> None:
        backend = Backend(start=failing(DeviceInitializationError("broken")))
        thread = BackendThread(backend, name="backend-under-test", allow_empty=True)
        with pytest.raises(DeviceInitializationError, match="broken"):
            await thread.start(LONG)
        assert await thread.close(LONG)

    run(test)


def test_a_call_that_hangs_is_reported_with_the_place(run: Run) -> None:
    gate = Gate([LocalDevice("test")])

    async def test() -> None:
        thread = make(Backend(start=gate))
        starting = asyncio.create_task(thread.start(0.5))
        await gate.wait_entered()
        with pytest.raises(DeviceTimeoutError) as caught:
            await starting
        assert re.search(
            r"was abandoned in start \([\w.]*test_backend_thread:\d+\), _call .*, wait \(threading:\d+\)\. Check",
            str(caught.value),
        )
        # Nothing of it keeps frames alive: the error may be kept for long.
        assert caught.value.__cause__ is None
        gate.opened.set()

    run(test)


def test_two_may_close_at_once(run: Run) -> None:
    async def test() -> None:
        thread = make(Backend())
        await thread.start(LONG)
        assert await asyncio.gather(thread.close(LONG), thread.close(LONG)) == [True, True]
        assert threads_under_test() == []

    run(test)


def test_a_closed_thread_refuses_calls(run: Run) -> None:
    async def test() -> None:
        thread = make(Backend())
        await thread.start(LONG)
        await thread.close(LONG)
        with pytest.raises(DeviceInitializationError, match="check_health was refused, because it is closed"):
            await thread.check_health(LONG)
        assert threads_under_test() == []

    run(test)


def test_calls_made_at_once_run_one_after_the_other(run: Run) -> None:
    async def test() -> None:
        backend = Backend()
        thread = make(backend)
        results = await asyncio.gather(*(thread.check_health(LONG) for _ in range(50)))
        assert results == [Health(ok=True)] * 50
        assert len(backend.threads) == 1
        await thread.close(LONG)

    run(test)


def test_the_loop_runs_on_during_a_call(run: Run) -> None:
    async def test() -> None:
        gate = Gate([LocalDevice("test")])
        thread = make(Backend(start=gate))
        starting = asyncio.create_task(thread.start(LONG))
        await gate.wait_entered()
        assert not starting.done()
        gate.opened.set()
        assert await starting == (LocalDevice("test"),)
        await thread.close(LONG)

    run(test)


def test_two_backends_start_side_by_side(run: Run) -> None:
    async def test() -> None:
        barrier = threading.Barrier(2)

        def meet() -> list[LocalDevice]:
            barrier.wait(LONG)
            return [LocalDevice("test")]

        threads = [make(Backend(start=meet)) for _ in range(2)]
        await asyncio.gather(*(thread.start(LONG) for thread in threads))
        assert await asyncio.gather(*(thread.close(LONG) for thread in threads)) == [True, True]

    run(test)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (OSError(19, "No such device"), "OSError: [Errno 19] No such device"),
        (ValueError(), "ValueError"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (StopIteration(), "StopIteration"),
        (TimeoutError("slow bus"), "TimeoutError: slow bus"),
        (asyncio.CancelledError(), "CancelledError"),
    ],
)
def test_foreign_errors_become_initialization_errors(run: Run, error: BaseException, cause: str) -> None:
    async def test() -> None:
        thread = make(Backend(start=failing(error)))
        with pytest.raises(DeviceInitializationError) as caught:
            await thread.start(LONG)
        assert caught.value.__cause__ is error
        assert caught.value.cause == cause
        assert caught.value.client_id == 7
        assert f"start raised {cause}" in str(caught.value)
        assert "the TEST backend of client 7 on host " in str(caught.value)
        assert await thread.close(LONG)

    run(test)


def test_errors_of_bringup_pass_and_learn_the_client(run: Run) -> None:
    async def test() -> None:
        missing = DeviceNotFoundError("none")
        configuration = ConfigurationError("odd")
        thread = make(Backend(start=failing(missing), check_health=failing(configuration)))
        with pytest.raises(DeviceNotFoundError) as caught:
            await thread.start(LONG)
        assert caught.value is missing
        assert missing.client_id == 7
        with pytest.raises(ConfigurationError) as other:
            await thread.check_health(LONG)
        assert other.value is configuration
        await thread.close(LONG)

    run(test)


def test_an_error_that_knows_its_client_keeps_it(run: Run) -> None:
    async def test() -> None:
        thread = make(Backend(start=failing(DeviceNotFoundError("none", client_id=3))))
        with pytest.raises(DeviceNotFoundError) as caught:
            await thread.start(LONG)
        assert caught.value.client_id == 3
        await thread.close(LONG)

    run(test)


def test_a_failed_start_is_stopped_and_the_thread_goes_on_until_then(run: Run) -> None:
    async def test() -> None:
        backend = Backend(start=failing(OSError("no")))
        thread = make(backend)
        with pytest.raises(DeviceInitializationError):
            await thread.start(LONG)
        await thread.check_health(LONG)
        assert await thread.close(LONG)
        assert backend.calls == ["start", "check_health", "stop"]

    run(test)


@pytest.mark.parametrize(
    ("what", "result"), [("start", None), ("start", [1]), ("check_health", True), ("check_health", None)]
)
def test_results_of_another_kind_are_errors(run: Run, what: str, result: Any) -> None:
    async def test() -> None:
        thread = make(Backend(**{what: lambda: result}))
        with pytest.raises(DeviceInitializationError, match=f"{what} returned .*, which is no "):
            await getattr(thread, what)(LONG)
        await thread.close(LONG)

    run(test)


def test_no_device_is_an_error(run: Run) -> None:
    async def test() -> None:
        thread = make(Backend(start=list))
        with pytest.raises(DeviceNotFoundError, match="came up without a device") as caught:
            await thread.start(LONG)
        assert caught.value.client_id == 7
        await thread.close(LONG)

    run(test)


def test_start_is_called_at_most_once(run: Run) -> None:
    async def test() -> None:
        thread = make(Backend())
        await thread.start(LONG)
        with pytest.raises(AssertionError):
            await thread.start(LONG)
        await thread.close(LONG)

    run(test)


def test_a_call_that_does_not_return_is_reported_and_abandoned(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate([LocalDevice("test")])
    backend = Backend(start=gate)

    async def test() -> None:
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
        assert await asyncio.to_thread(backend.stopped.wait, LONG)

    with caplog.at_level(logging.WARNING):
        run(test)
    assert backend.calls == ["start", "stop"]
    assert [record.message.endswith("thread backend-under-test is abandoned") for record in caplog.records] == [True]


def test_calls_behind_a_hung_one_fail_with_it(run: Run) -> None:
    gate = Gate(Health(ok=True))
    backend = Backend(check_health=gate)

    async def test() -> None:
        thread = make(backend)
        first = asyncio.create_task(thread.check_health(LONG))
        await gate.wait_entered()
        second = asyncio.create_task(thread.check_health(LONG))
        with pytest.raises(
            DeviceTimeoutError, match=r"start did not return within .* \(it waited behind check_health\)"
        ):
            await thread.start(SHORT)
        for task in (first, second):
            with pytest.raises(DeviceTimeoutError, match="was given up, because start did not return"):
                await task
        gate.opened.set()

    run(test)
    assert backend.calls == ["check_health"]


def test_a_hung_thread_that_is_closed_is_abandoned_and_named(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate(Health(ok=True))

    async def test() -> None:
        thread = make(Backend(check_health=gate))
        checking = asyncio.create_task(thread.check_health(LONG))
        await gate.wait_entered()
        assert not await thread.close(SHORT)
        assert thread.abandoned
        with pytest.raises(DeviceTimeoutError, match="check_health was given up"):
            await checking
        assert not await thread.close(LONG)
        gate.opened.set()

    with caplog.at_level(logging.WARNING):
        run(test)
    (record,) = caplog.records
    assert "check_health did not return within 0.02 s of closing; thread backend-under-test" in record.message


def test_close_waits_for_the_running_call_and_drops_those_behind(run: Run) -> None:
    gate = Gate([LocalDevice("test")])
    backend = Backend(start=gate)

    async def test() -> None:
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

    run(test)
    assert backend.calls == ["start", "stop"]


def test_a_cancelled_start_ends_in_the_background_and_is_stopped(run: Run) -> None:
    gate = Gate([LocalDevice("test")])
    backend = Backend(start=gate)

    async def test() -> None:
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

    run(test)
    assert backend.calls == ["start", "stop"]


def test_a_cancelled_start_needs_no_close(run: Run) -> None:
    gate = Gate([LocalDevice("test")])
    backend = Backend(start=gate)

    async def test() -> None:
        starting = asyncio.create_task(make(backend).start(LONG))
        await gate.wait_entered()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    async def twice() -> None:
        await test()
        gate.opened.set()

    run(twice)
    assert backend.calls == ["start", "stop"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_start_that_is_cancelled_as_it_ends_is_stopped(run: Run, fails: bool) -> None:
    gate, behind = Gate([LocalDevice("test")]), Gate(Health(ok=True))
    backend = Backend(start=(lambda: (gate(), 1 / 0)) if fails else gate, check_health=behind)

    async def test() -> None:
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

    run(test)
    assert backend.calls == ["start", "check_health", "stop"]


def test_an_error_after_cancellation_is_not_lost_noisily(run: Run) -> None:
    gate = Gate()
    backend = Backend(start=lambda: (gate(), 1 / 0))

    async def test() -> None:
        thread = make(backend)
        starting = asyncio.create_task(thread.start(LONG))
        await gate.wait_entered()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        gate.opened.set()
        assert await thread.close(LONG)

    run(test)
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


def test_a_backend_that_can_be_interrupted_is_when_it_is_given_up(run: Run) -> None:
    async def test() -> None:
        thread = make(SlowSim())
        with pytest.raises(DeviceTimeoutError):
            await thread.start(SHORT)

    run(test)


def test_a_backend_that_can_be_interrupted_is_when_its_start_is_cancelled(run: Run) -> None:
    async def test() -> None:
        backend = SlowSim()
        thread = make(backend)
        starting = asyncio.create_task(thread.start(LONG))
        assert await asyncio.to_thread(backend.entered.wait, LONG)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert await thread.close(LONG)
        assert threads_under_test() == []

    run(test)


def test_a_backend_that_can_be_interrupted_is_when_it_is_closed(run: Run) -> None:
    async def test() -> None:
        backend = SlowSim()
        thread = make(backend)
        starting = asyncio.create_task(thread.start(LONG))
        assert await asyncio.to_thread(backend.entered.wait, LONG)
        assert await thread.close(LONG)
        with pytest.raises(DeviceInitializationError, match="stopped during the 3600 s"):
            await starting

    run(test)


def test_a_failing_interrupt_is_logged(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate([LocalDevice("test")])

    class Odd(Backend):
        def interrupt(self) -> None:
            gate.opened.set()
            raise OSError("cannot")

    async def test() -> None:
        thread = make(Odd(start=gate))
        starting = asyncio.create_task(thread.start(LONG))
        await gate.wait_entered()
        assert await thread.close(LONG)
        await starting

    run(test)
    assert "interrupting start failed" in caplog.text


def test_a_failing_stop_is_logged_and_not_tried_again(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        backend = Backend(stop=failing(SystemExit(1)))
        thread = make(backend)
        await thread.start(LONG)
        assert await thread.close(LONG)
        assert backend.calls == ["start", "stop"]
        assert "stopping it failed" in caplog.text

        backend = Backend(stop=failing(OSError("busy")))
        thread = make(backend)
        await thread.start(LONG)
        assert await thread.close(LONG)
        assert "OSError: busy" in caplog.text
        assert backend.calls == ["start", "stop"]

    run(test)


def test_a_system_without_threads_to_spare_is_reported(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr(threading.Thread, "start", lambda _: failing(RuntimeError("no more"))())
        thread = make(Backend())
        with pytest.raises(DeviceInitializationError, match="no thread could be started"):
            await thread.check_health(LONG)
        monkeypatch.undo()
        assert await thread.check_health(LONG)
        assert await thread.close(LONG)

    run(test)


def test_without_a_client_id_errors_name_the_host_alone(run: Run) -> None:
    async def test() -> None:
        thread = make(Backend(check_health=failing(OSError("no"))), client_id=None)
        with pytest.raises(DeviceInitializationError, match="the TEST backend on host "):
            await thread.check_health(LONG)
        await thread.close(LONG)

    run(test)


def test_many_threads_come_and_go(run: Run) -> None:
    async def cycle() -> None:
        thread = make(Backend())
        await thread.start(LONG)
        await thread.check_health(LONG)
        assert await thread.close(LONG)

    async def test() -> None:
        for _ in range(20):
            await asyncio.gather(*(cycle() for _ in range(10)))
            assert threads_under_test() == []

    run(test)


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
