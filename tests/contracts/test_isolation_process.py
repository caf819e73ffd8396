"""The process of an isolated backend under hostile conditions: paths, prints, signals and interpreters of all kinds."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from bringup.devices.base import Health, LocalDevice
from bringup.devices.isolation.child import GROUP_SIGNALS
from bringup.devices.isolation.output import ProcessOutput
from bringup.devices.isolation.process import BackendProcess
from bringup.devices.thread import BackendThread
from bringup.errors import DeviceInitializationError

from ..lib.isolated import LONG, Native, pid_of, sim, watched


def test_any_path_of_imports_goes_along(native: Native, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, a `Path` was no JSON, and what has more than 128 KiB no argument."""
    backend = native()
    long = [f"/nowhere/{'x' * 100}/{number}" for number in range(1500)]
    odd = [Path("/nowhere"), b"/nowhere", None, "/nowhere/\udcff"]
    monkeypatch.setattr(sys, "path", [*odd, *long, *sys.path])
    assert backend.start() == (LocalDevice("native"),)
    backend.stop()


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_is_printed_as_python_starts_disturbs_nothing(
    native: Native, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unbuffered: str
) -> None:
    """Before, it came between the frames."""
    backend = native(check_health="os.abort()")
    code = "import os, sys; print('Loading'); print('on stderr', file=sys.stderr); os.write(1, b'native\\n')"
    (tmp_path / "sitecustomize.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    assert backend.start() == (LocalDevice("native"),)
    detail = backend.check_health().detail
    assert "SIGABRT" in detail
    assert "native | " in detail
    assert "on stderr" in detail


def test_signals_to_the_group_end_the_backend_neither_early_nor_late(native: Native, tmp_path: Path) -> None:
    """Before, all but two of them killed it, and those two were ignored by what it starts as well."""
    (tmp_path / "sitecustomize.py").write_text(
        f"import os\nfor number in {sorted(GROUP_SIGNALS)!r}: os.kill(os.getpid(), number)\n"
    )
    ask = "import subprocess; self.seen = subprocess.check_output(['grep', 'Sig[IB]', '/proc/self/status'], text=True)"
    backend = native(start=ask, check_health="assert self.seen.split()[1::2] == ['0' * 16] * 2, self.seen")
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(tmp_path)
    try:
        assert backend.start() == (LocalDevice("native"),)
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before
    for number in GROUP_SIGNALS:
        os.kill(pid_of(backend), number)
    # Python itself ignores SIGPIPE and SIGXFSZ, and `subprocess` gives them back.
    assert backend.check_health() == Health(ok=True)
    assert {
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGTERM,
    } < GROUP_SIGNALS
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) & GROUP_SIGNALS == set()
    backend.stop()


def test_what_it_prints_between_calls_is_bounded(native: Native) -> None:
    """Before, what came between two calls was stored without a bound, in memory of the client."""
    flood = "threading.Thread(target=lambda: [os.write(1, b'x' * 65536) for _ in iter(int, 1)], daemon=True).start()"
    backend = native(start=flood)
    backend.start()
    assert backend.check_health() == Health(ok=True)
    backend.stop()
    output = ProcessOutput()
    flooding = threading.Thread(target=lambda: [os.write(output.descriptor, b"x" * 2**16) for _ in range(2**7)])
    flooding.start()
    assert output.wait_beyond(2**22, LONG)
    flooding.join(LONG)
    assert len(output.last(2**22)) <= 2**16
    output.close()


def test_output_that_outlives_its_process_keeps_no_thread(native: Native) -> None:
    before = threading.active_count()
    backend = native(start="import subprocess; subprocess.Popen(['sleep', '3600'], start_new_session=False)")
    backend.start()
    backend.stop()
    assert threading.active_count() == before


def test_the_output_of_a_process_is_kept_to_its_end() -> None:
    output = ProcessOutput()
    os.write(output.descriptor, b"a" * 100_000 + b"the end")
    assert output.wait_beyond(100_006, LONG)
    output.hand_over()
    output.wait_end(LONG)
    assert output.size == 100_007
    assert output.last(7) == b"the end"
    assert output.since(100_000, 3) == b"the"
    assert output.since(0, 2**20) == b"a" * (2**16 - 7) + b"the end"
    output.close()
    output.close()


IGNORING = """
    import os, signal
    from bringup.devices.base import BackendConfig
    from bringup.devices.isolation.backend import IsolatedBackend
    from bringup.errors import DeviceInitializationError

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    backend = IsolatedBackend("SIM", BackendConfig(environment={"BRINGUP_SIM_FAULT": "0:crash:KILL"}))
    try:
        backend.start()
    except DeviceInitializationError as error:
        print(error)
"""


def test_an_end_that_nobody_can_know_is_not_said_to_be_in_order() -> None:
    """Before, it "ended with status 0"."""
    command = [sys.executable, "-P", "-c", textwrap.dedent(IGNORING)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=True)
    assert "ended, how is not known, as the client process ignores SIGCHLD, during start" in done.stdout


def test_an_end_that_other_code_has_waited_for_is_not_said_to_be_in_order(native: Native) -> None:
    """Before, a process that was killed "ended with status 0"."""
    backend = native()
    backend.start()
    os.kill(pid_of(backend), signal.SIGKILL)
    os.waitpid(pid_of(backend), 0)
    assert "or was waited for by other code of the client process" in backend.check_health().detail


def test_an_interpreter_within_a_script_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, the process ended without a word, as the client was not its parent."""
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\n{sys.executable} "$@"\nexit $?\n')
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    backend = sim()
    assert len(backend.start()) == 8
    with watched(pid_of(backend)) as gone:
        backend.stop()
        assert gone()


def test_a_client_that_cannot_be_seen_is_an_error_with_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 2**22 + 1)
    with pytest.raises(
        DeviceInitializationError, match=r"ended with status 1 during open.* It said: the client, process"
    ):
        sim().open()


def test_a_frozen_application_is_no_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, the application started itself again."""
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(DeviceInitializationError, match=r"this application is frozen.* or leave isolate_backend out"):
        sim().open()


def test_an_executable_that_starts_this_program_again_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from bringup.devices.base import BackendConfig\n"
        "from bringup.devices.isolation.backend import IsolatedBackend\n"
        "IsolatedBackend('SIM', BackendConfig()).open()\n"
    )
    script = tmp_path / "application"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {program} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    with pytest.raises(DeviceInitializationError, match="is no Python interpreter: it has started this program again"):
        sim().open()


async def test_a_call_that_is_cut_short_in_order_leaves_no_stack_in_the_log(
    native: Native, caplog: pytest.LogCaptureFixture
) -> None:
    """Before, where another client failed, each healthy one logged twenty lines of its own stack."""
    backend = native(start="time.sleep(3600)")
    thread = BackendThread(backend, name="backend-under-test", client_id=7)
    await thread.open(LONG)
    starting = asyncio.create_task(thread.start(LONG))
    await asyncio.sleep(0)
    with watched(pid_of(backend)) as gone:
        starting.cancel()
        await asyncio.wait({starting})
        assert await thread.close(LONG)
        assert await asyncio.to_thread(gone)
    assert "native_module" not in caplog.text
    assert "stack" not in caplog.text


def test_a_process_that_was_asked_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, each cancellation in the first moments waited a second for a stack that could not come."""
    backend = sim()
    backend.interrupt()
    asked: list[str] = []
    monkeypatch.setattr(BackendProcess, "_stack", lambda _: asked.append("stack") or "")
    with pytest.raises(DeviceInitializationError, match="was killed in open, which had been given up"):
        backend.open()
    assert asked == []


def test_an_interrupt_that_comes_too_late_is_no_failure_of_stop(native: Native) -> None:
    """Before, stop raised that it had been killed, which a cancelled `initialize()` logged with a traceback."""
    backend = native()
    backend.start()
    with watched(pid_of(backend)) as gone:
        backend.interrupt()
        backend.stop()
        assert gone()


def test_a_forked_copy_of_the_client_holds_up_no_stop(native: Native, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, the copy kept the pipe open: the process ended only when it was killed, after two seconds."""
    started: list[subprocess.Popen[bytes]] = []

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Popen)
    backend = native()
    backend.start()
    copy = os.fork()
    if copy == 0:
        signal.pause()
        os._exit(0)
    try:
        backend.stop()
        assert [process.returncode for process in started] == [0]  # else it was killed
    finally:
        os.kill(copy, signal.SIGKILL)
        os.waitpid(copy, 0)
