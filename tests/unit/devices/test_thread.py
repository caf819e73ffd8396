"""A device backend in its thread: opening, starting, checking and stopping it, and its errors."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from bringup.devices.base import Health, LocalDevice
from bringup.devices.thread import BackendThread
from bringup.errors import (
    ConfigurationError,
    DeviceInitializationError,
    DeviceNotFoundError,
    DeviceTimeoutError,
)

from ...lib.backend_doubles import LONG, SHORT, Backend, Gate, failing, make, threads_under_test

pytestmark = [pytest.mark.every_loop, pytest.mark.usefixtures("no_error_goes_unseen")]


async def test_calls_run_in_one_daemon_thread_and_give_results() -> None:
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


async def test_close_stops_what_was_started() -> None:
    backend = Backend()
    thread = make(backend)
    await thread.start(LONG)
    assert await thread.close(LONG)
    assert threads_under_test() == []
    assert backend.calls == ["start", "stop"]
    assert await thread.close(LONG)
    assert backend.calls == ["start", "stop"]


async def test_close_does_not_stop_what_was_never_started() -> None:
    backend = Backend()
    thread = make(backend)
    await thread.check_health(LONG)
    assert await thread.close(LONG)
    assert backend.calls == ["check_health"]


class Unopened(Backend):
    """Is of the type that it was opened as."""

    def __init__(self, **behaviour: Callable[[], Any]) -> None:
        super().__init__(**behaviour)
        self.device_type = "preferred"
        self.simulated = False

    def open(self) -> None:
        self._call("open", None)
        self.device_type, self.simulated = "FOUND", True


async def test_what_a_backend_is_may_be_found_out_in_its_thread() -> None:
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


async def test_one_that_needs_no_opening_is_not_opened() -> None:
    backend = Backend()
    thread = make(backend)
    await thread.open(LONG)
    assert (thread.device_type, thread.simulated) == ("TEST", True)
    assert await thread.close(LONG)
    assert backend.calls == []


async def test_an_opening_that_fails_or_hangs_is_reported() -> None:
    gate = Gate()
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
    thread = make(Unopened(open=gate))
    with pytest.raises(DeviceTimeoutError, match=r"the preferred backend of client 7 on host .*: open did not return"):
        await thread.open(SHORT)
    gate.opened.set()


@pytest.mark.parametrize("start", [list, failing(DeviceNotFoundError("none here"))])
async def test_a_client_may_be_allowed_to_have_no_devices(
    start: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    backend = Backend(start=start, check_health=failing(OSError("not started")))
    thread = BackendThread(backend, name="backend-under-test", client_id=7, allow_empty=True)
    with caplog.at_level(logging.INFO):
        assert await thread.start(LONG) == ()
        assert await thread.check_health(LONG) == Health(ok=True, detail="no devices")
        assert await thread.close(LONG)
    assert backend.calls == ["start", "stop"]
    assert "the TEST backend of client 7 on host " in caplog.text
    assert "has no devices: " in caplog.text


async def test_other_failures_of_a_client_that_may_be_empty_are_failures() -> None:
    backend = Backend(start=failing(DeviceInitializationError("broken")))
    thread = BackendThread(backend, name="backend-under-test", allow_empty=True)
    with pytest.raises(DeviceInitializationError, match="broken"):
        await thread.start(LONG)
    assert await thread.close(LONG)


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
async def test_foreign_errors_become_initialization_errors(error: BaseException, cause: str) -> None:
    thread = make(Backend(start=failing(error)))
    with pytest.raises(DeviceInitializationError) as caught:
        await thread.start(LONG)
    assert caught.value.__cause__ is error
    assert caught.value.cause == cause
    assert caught.value.client_id == 7
    assert f"start raised {cause}" in str(caught.value)
    assert "the TEST backend of client 7 on host " in str(caught.value)
    assert await thread.close(LONG)


async def test_errors_of_bringup_pass_and_learn_the_client() -> None:
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


async def test_an_error_that_knows_its_client_keeps_it() -> None:
    thread = make(Backend(start=failing(DeviceNotFoundError("none", client_id=3))))
    with pytest.raises(DeviceNotFoundError) as caught:
        await thread.start(LONG)
    assert caught.value.client_id == 3
    await thread.close(LONG)


async def test_a_failed_start_is_stopped_and_the_thread_goes_on_until_then() -> None:
    backend = Backend(start=failing(OSError("no")))
    thread = make(backend)
    with pytest.raises(DeviceInitializationError):
        await thread.start(LONG)
    await thread.check_health(LONG)
    assert await thread.close(LONG)
    assert backend.calls == ["start", "check_health", "stop"]


@pytest.mark.parametrize(
    ("what", "result"), [("start", None), ("start", [1]), ("check_health", True), ("check_health", None)]
)
async def test_results_of_another_kind_are_errors(what: str, result: Any) -> None:
    thread = make(Backend(**{what: lambda: result}))
    with pytest.raises(DeviceInitializationError, match=f"{what} returned .*, which is no "):
        await getattr(thread, what)(LONG)
    await thread.close(LONG)


async def test_no_device_is_an_error() -> None:
    thread = make(Backend(start=list))
    with pytest.raises(DeviceNotFoundError, match="came up without a device") as caught:
        await thread.start(LONG)
    assert caught.value.client_id == 7
    await thread.close(LONG)


async def test_start_is_called_at_most_once() -> None:
    thread = make(Backend())
    await thread.start(LONG)
    with pytest.raises(AssertionError):
        await thread.start(LONG)
    await thread.close(LONG)


async def test_a_failing_stop_is_logged_and_not_tried_again(caplog: pytest.LogCaptureFixture) -> None:
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


async def test_without_a_client_id_errors_name_the_host_alone() -> None:
    thread = make(Backend(check_health=failing(OSError("no"))), client_id=None)
    with pytest.raises(DeviceInitializationError, match="the TEST backend on host "):
        await thread.check_health(LONG)
    await thread.close(LONG)
