"""A backend in a process of its own: what hangs is killed, what crashes is named, and nothing stays."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable

import pytest

from bringup.devices.base import BackendConfig, Discovery, Health, LocalDevice
from bringup.devices.isolation.backend import IsolatedBackend
from bringup.devices.sim.backend import SimBackend
from bringup.devices.thread import BackendThread
from bringup.errors import (
    BringupError,
    ConfigurationError,
    DeviceInitializationError,
    DeviceNotFoundError,
    DeviceTimeoutError,
)

from ..lib.isolated import LONG, pid_of, sim, sim_config, watched

SHORT = 0.3


def test_it_does_what_the_backend_does() -> None:
    isolated, here = sim(client_id=2), SimBackend(sim_config(client_id=2))
    isolated.open()
    assert (isolated.device_type, isolated.simulated) == ("SIM", True)
    assert isolated.discover() == here.discover()
    assert isolated.start() == tuple(here.start())
    assert isolated.check_health() == Health(ok=True)
    pid = pid_of(isolated)
    with watched(pid) as gone:
        isolated.stop()
        assert gone()
    assert isolated.check_health() == Health(ok=False, detail="the SIM backend is not started")


def test_the_preferred_type_is_found_in_the_child() -> None:
    backend = IsolatedBackend(None, BackendConfig())
    assert backend.device_type == "preferred"
    backend.open()
    assert backend.device_type in ("TPU", "GPU", "CPU")
    assert backend.discover().present
    backend.stop()


@pytest.mark.parametrize(
    ("device_type", "config", "kind", "words"),
    [
        ("XPU", BackendConfig(), ConfigurationError, "device_type='XPU' is not known"),
        ("SIM", sim_config(TOPOLOGY="0x1"), ConfigurationError, "BRINGUP_SIM_TOPOLOGY='0x1': a size is 0"),
    ],
)
def test_a_backend_that_cannot_be_made_is_refused_as_it_would_be_here(
    device_type: str, config: BackendConfig, kind: type[BringupError], words: str
) -> None:
    backend = IsolatedBackend(device_type, config)
    with pytest.raises(kind, match=words):
        backend.open()
    assert backend.pid is None
    with pytest.raises(kind, match=words):
        backend.start()
    backend.stop()


def test_its_errors_are_its_own() -> None:
    backend = sim("1:raise:no power", client_id=1)
    with pytest.raises(DeviceInitializationError) as caught:
        backend.start()
    assert str(caught.value) == "the SIM backend of client 1 did not start: no power."
    assert (caught.value.client_id, caught.value.cause) == (1, "no power")
    assert not backend.check_health().ok
    backend.stop()
    backend = sim("1:missing:8", client_id=1)
    with pytest.raises(DeviceNotFoundError, match="took all of them"):
        backend.start()
    backend.stop()


def test_other_errors_say_where_they_happened(native: Callable[..., IsolatedBackend]) -> None:
    backend = native(start="raise OSError(19, 'No such device')")
    with pytest.raises(DeviceInitializationError) as caught:
        backend.start()
    message = str(caught.value)
    assert "the NATIVE backend of client 7 on host " in message
    assert f" (its own process {pid_of(backend)}): start raised OSError: [Errno 19] No such device" in message
    assert ", in the backend's code, start (native_module:18)." in message
    assert caught.value.cause == "OSError: [Errno 19] No such device"
    backend.stop()


@pytest.mark.parametrize("name", ["SEGV", "ABRT", "BUS", "KILL"])
def test_a_crash_is_named_and_takes_nobody_along(name: str) -> None:
    backend = sim(f"1:crash:{name}", client_id=1)
    with pytest.raises(DeviceInitializationError) as caught:
        backend.start()
    message = str(caught.value)
    assert f"was killed by SIG{name} during start. Look for a defect" in message
    assert "the SIM backend of client 1 on host " in message
    assert caught.value.client_id == 1
    assert caught.value.cause == f"the backend's process was killed by SIG{name} during start"
    # Python says where it was, unless it is killed without a word.
    assert ("sim/backend.py" in message) is (name != "KILL")
    assert backend.check_health() == Health(ok=False, detail=message, permanent=True)
    backend.stop()


def test_real_native_code_may_crash(native: Callable[..., IsolatedBackend]) -> None:
    backend = native(check_health="import ctypes; print('last words', flush=True); ctypes.string_at(0)")
    assert backend.start() == (LocalDevice("native"),)
    health = backend.check_health()
    assert not health.ok
    assert health.permanent
    assert "was killed by SIGSEGV during check_health" in health.detail
    assert "It said: last words" in health.detail
    assert backend.check_health() == health


def test_an_end_without_a_word_is_told_too(native: Callable[..., IsolatedBackend]) -> None:
    backend = native(start="os._exit(3)")
    with pytest.raises(DeviceInitializationError, match=r"ended with status 3 during start\."):
        backend.start()


def test_one_that_ends_its_interpreter_is_an_error(native: Callable[..., IsolatedBackend]) -> None:
    backend = native(start="sys.exit('bye')")
    with pytest.raises(DeviceInitializationError, match="start raised SystemExit: bye"):
        backend.start()
    backend.stop()


def test_one_that_dies_as_it_is_made_is_told_of(native: Callable[..., IsolatedBackend]) -> None:
    backend = native(init="os.abort()")
    with pytest.raises(DeviceInitializationError, match="was killed by SIGABRT during open"):
        backend.discover()


def test_a_result_of_another_kind_is_an_error(native: Callable[..., IsolatedBackend]) -> None:
    backend = native(discover="return 3", check_health="return Discovery(True, '')")
    with pytest.raises(DeviceInitializationError, match="discover returned 3, which is no Discovery"):
        backend.discover()
    backend.start()
    with pytest.raises(DeviceInitializationError, match=r"check_health returned Discovery.*, which is no Health"):
        backend.check_health()


def test_what_it_prints_disturbs_nothing_and_is_bounded(native: Callable[..., IsolatedBackend]) -> None:
    noise = "os.write(1, b'x' * 3_000_000); os.write(2, b'y' * 3_000_000); print('end', flush=True)"
    backend = native(start=noise, check_health=f"{noise}; os.abort()")
    assert backend.start() == (LocalDevice("native"),)
    detail = backend.check_health().detail
    assert "SIGABRT" in detail
    assert "yyyy" in detail or "end" in detail
    assert len(detail) < 5000


def test_nothing_can_be_read_from_the_standard_input(native: Callable[..., IsolatedBackend]) -> None:
    backend = native(start="assert sys.stdin.read() == ''")
    assert backend.start() == (LocalDevice("native"),)
    backend.stop()


def test_it_has_the_environment_and_the_settings_of_the_client(
    native: Callable[..., IsolatedBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SET_BY_THE_CLIENT", "yes")
    backend = native(start="assert os.environ['SET_BY_THE_CLIENT'] == 'yes'; assert self.told == {'GIVEN': 'it'}")
    assert backend.start() == (LocalDevice("native"),)
    backend.stop()


def test_signals_to_the_whole_group_are_the_clients_to_handle(native: Callable[..., IsolatedBackend]) -> None:
    backend = native()
    backend.start()
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(pid_of(backend), number)
    assert backend.check_health() == Health(ok=True)
    backend.stop()


def test_one_that_cannot_be_started_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(DeviceInitializationError, match=r"its process could not be started: .*No such file"):
        sim().open()
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(DeviceInitializationError, match=r"sys\.executable is empty"):
        sim().open()


HANGS = {
    "in python": "threading.Event().wait()",
    "in a system call": "time.sleep(3600)",
    "with the interpreter's lock": "import ctypes; ctypes.PyDLL(None).sleep(3600)",
    "without an end": "exec('while True: pass')",
    "with signals blocked": "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); time.sleep(3600)",
}


@pytest.mark.parametrize("how", HANGS)
async def test_a_call_that_hangs_is_killed(
    native: Callable[..., IsolatedBackend], how: str, caplog: pytest.LogCaptureFixture
) -> None:
    backend = native(start=HANGS[how])
    thread = BackendThread(backend, name="backend-under-test", client_id=7)
    await thread.open(LONG)
    with watched(pid_of(backend)) as gone:
        with pytest.raises(DeviceTimeoutError) as caught:
            await thread.start(SHORT)
        assert "the NATIVE backend of client 7 on host " in str(caught.value)
        assert "start did not return within 0.3 s" in str(caught.value)
        assert await asyncio.to_thread(gone)
    # With its process it has come to an end after all.
    for own in threading.enumerate():
        if own.name == "backend-under-test":
            await asyncio.to_thread(own.join, LONG)
            assert not own.is_alive()
    assert "was killed in start" in caplog.text
    if how != "with signals blocked":
        assert "native_module.py" in caplog.text


async def test_one_that_hangs_as_it_is_made_is_killed(native: Callable[..., IsolatedBackend]) -> None:
    backend = native(init="time.sleep(3600)")
    thread = BackendThread(backend, name="backend-under-test", client_id=7)
    with pytest.raises(DeviceTimeoutError, match="open did not return"):
        await thread.open(SHORT)
    for own in threading.enumerate():
        if own.name == "backend-under-test":
            own.join(LONG)
    assert backend.pid is None


async def test_a_stop_that_hangs_is_killed(native: Callable[..., IsolatedBackend]) -> None:
    backend = native(stop="time.sleep(3600)")
    thread = BackendThread(backend, name="backend-under-test", client_id=7)
    await thread.start(LONG)
    with watched(pid_of(backend)) as gone:
        assert not await thread.close(SHORT)
        assert await asyncio.to_thread(gone)


async def test_heartbeats_go_on_while_native_code_holds_its_lock() -> None:
    thread = BackendThread(sim("0:gil:1.5"), name="backend-under-test", client_id=0)
    await thread.open(LONG)
    starting = asyncio.create_task(thread.start(LONG))
    loop, worst = asyncio.get_running_loop(), 0.0
    while not starting.done():
        before = loop.time()
        await asyncio.sleep(0.01)
        worst = max(worst, loop.time() - before)
    assert len(await starting) == 8
    assert await thread.close(LONG)
    assert worst < 1.2


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels do not tell processes of it")
def test_the_end_of_the_thread_is_the_end_of_the_process() -> None:
    backend = sim()
    opened, may_end = threading.Event(), threading.Event()

    def work() -> None:
        backend.open()
        opened.set()
        assert may_end.wait(LONG)

    thread = threading.Thread(target=work)
    thread.start()
    assert opened.wait(LONG)
    with watched(pid_of(backend)) as gone:
        may_end.set()
        thread.join(LONG)
        assert gone()
    health = backend.check_health()
    assert health.permanent
    assert "was killed by SIGKILL during check_health" in health.detail


def test_nobody_leaves_a_process_behind_by_forgetting_it() -> None:
    backend = sim()
    backend.start()
    with watched(pid_of(backend)) as gone:
        del backend
        assert gone()


def test_descriptors_do_not_stay() -> None:
    sim().stop()
    before = sorted(os.listdir("/proc/self/fd"))
    for fault in ("", "0:crash", "0:raise"):
        backend = sim(fault)
        with contextlib.suppress(DeviceInitializationError):
            backend.start()
        backend.stop()
    assert sorted(os.listdir("/proc/self/fd")) == before


PARENT = """
    import os, signal, sys, threading
    from bringup.devices.base import BackendConfig
    from bringup.devices.isolation.backend import IsolatedBackend

    backend = IsolatedBackend("SIM", BackendConfig(environment={{"BRINGUP_SIM_FAULT": "0:{fault}"}}))
    backend.open()
    print(backend.pid, flush=True)
    sys.stdin.readline()
    if {hangs}:
        starting = threading.Thread(target=backend.start, daemon=True)
        starting.start()
        starting.join(0.2)
    {end}
"""


@pytest.mark.parametrize("fault", ["hang", "gil:3600", "slow:0"])
@pytest.mark.parametrize("end", ["pass", "os.kill(os.getpid(), signal.SIGKILL)", "os._exit(0)", "sys.exit(3)"])
def test_it_dies_with_its_client(fault: str, end: str) -> None:
    code = textwrap.dedent(PARENT).format(fault=fault, hangs=fault != "slow:0", end=end)
    with subprocess.Popen(
        [sys.executable, "-P", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        with watched(int(client.stdout.readline())) as gone:
            client.stdin.write("\n")
            client.stdin.flush()
            client.wait(LONG)
            assert gone()


FORKING = """
    import os, sys
    from bringup.devices.base import BackendConfig
    from bringup.devices.isolation.backend import IsolatedBackend

    backend = IsolatedBackend("SIM", BackendConfig())
    backend.start()
    copy = os.fork()
    if copy == 0:
        sys.exit(0)
    assert os.waitpid(copy, 0)[1] == 0
    print(backend.check_health().ok)
    backend.stop()
"""


def test_a_forked_copy_of_the_client_leaves_it_alone() -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-P", "-c", textwrap.dedent(FORKING)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=True)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_an_interrupt_before_anything_runs_stays() -> None:
    backend = sim()
    backend.interrupt()
    with pytest.raises(DeviceInitializationError, match="was killed in open, which had been given up"):
        backend.open()


def test_discovery_may_come_again_after_stop() -> None:
    backend = sim()
    backend.start()
    backend.stop()
    assert isinstance(backend.discover(), Discovery)
    backend.stop()
