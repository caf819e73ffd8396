"""Child processes: programs that are forked behave as started ones do, and helpers answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bringup.processes.fork_server import ForkedProcess, ForkServer, ForkServerError
from bringup.processes.helper import HelperEndedError, HelperProcess

from ..lib.process_ends import has_ended

MODULES = ("json", "asyncio", "no_such_module_anywhere")


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(MODULES) as server:
        yield server


def environment(**others: str) -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1", **others}


def start(server: ForkServer, *command: str, cwd: str | None = None, **environ: str) -> ForkedProcess:
    program = server.program_of([sys.executable, *command], environment(**environ))
    assert program is not None
    return server.start(program, environment(**environ), cwd)


def outcome(process: ForkedProcess) -> tuple[int, str, str]:
    process.stdin.close()
    written = process.stdout.read(), process.stderr.read()
    found = process.wait(30), *written
    process.close()
    return found


LOOKS = """
import json, os, random, signal, sys, threading
print(json.dumps({
    "main": __name__, "file": globals().get("__file__"), "argv": sys.argv, "path": sys.path[0], "cwd": os.getcwd(),
    "own": os.environ.get("OWN"), "descriptors": len(os.listdir("/proc/self/fd")), "threads": threading.active_count(),
    "leads": os.getpid() == os.getpgid(0) == os.getsid(0), "is_main": sys.modules["__main__"].__dict__ is globals(),
    "is_main_thread": threading.current_thread() is threading.main_thread(), "read": sys.stdin.read(),
    "signals": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
    "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())), "streams": [
        (stream.encoding, stream.errors, stream.line_buffering, stream.write_through, stream.seekable())
        for stream in (sys.stdin, sys.stdout, sys.stderr)],
}))
"""


@pytest.mark.parametrize("kind", ["code", "file"])
def test_a_forked_program_finds_what_a_started_one_finds(server: ForkServer, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(LOOKS)
    command = [str(path), "one", "two"] if kind == "file" else ["-c", LOOKS, "one", "two"]
    started = subprocess.run(
        [sys.executable, *command],
        env=environment(OWN="mine"),
        cwd=tmp_path,
        input="",
        capture_output=True,
        text=True,
        check=True,
        start_new_session=True,
        restore_signals=True,
    )
    status, output, log = outcome(start(server, *command, cwd=str(tmp_path), OWN="mine"))
    assert (status, log) == (0, started.stderr)
    assert json.loads(output) == json.loads(started.stdout)


ENDS = {
    "the end": ("print('over')", 0, "over\n"),
    "sys.exit": ("import sys; sys.exit(3)", 3, ""),
    "an exception": ("raise ZeroDivisionError", 1, ""),
    "Ctrl-C": ("import signal; signal.raise_signal(signal.SIGINT)", -signal.SIGINT, ""),
    "SIGKILL": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
    "os._exit": ("import os; os._exit(4)", 4, ""),
    "handlers and threads": (
        "import atexit, threading; atexit.register(print, 'last'); threading.Timer(0.05, print, ['first']).start()",
        0,
        "first\nlast\n",
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_forked_program_ends_as_a_started_one_does(server: ForkServer, end: str) -> None:
    code, expected, written = ENDS[end]
    status, output, log = outcome(start(server, "-c", code))
    assert (status, output) == (expected, written)
    assert ("Traceback" in log) == (end in ("an exception", "Ctrl-C"))


def test_forked_programs_are_different_ones(server: ForkServer) -> None:
    code = "import random, os, tempfile, uuid; print(random.random(), os.urandom(4), tempfile.mktemp(), uuid.uuid4())"
    first, second = (outcome(start(server, "-c", code))[1].split(" ", 1) for _ in range(2))
    assert first[0] != second[0]
    assert first[1] != second[1]


def test_a_forked_program_is_watched_and_signalled(server: ForkServer) -> None:
    process = start(server, "-c", "import signal; print('up'); signal.pause()")
    assert process.stdout.readline() == "up\n"
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.send_signal(signal.SIGSTOP)
    assert process.poll() is None
    process.kill()
    assert process.wait(30) == process.poll() == process.returncode == -signal.SIGKILL
    process.terminate()
    process.close()


def test_what_differs_from_the_start_on_is_not_forked(server: ForkServer) -> None:
    command = [sys.executable, "-c", "pass"]
    assert server.program_of(command, environment()) is not None
    assert server.program_of(command, environment(PYTHONHASHSEED="3")) is None


def test_what_cannot_be_forked_says_why(server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ForkServerError, match=r"no process could be forked: .*No such file or directory.*nowhere"):
        start(server, "-c", "pass", cwd=str(tmp_path / "nowhere"))
    module = tmp_path / "breaks.py"
    module.write_text("import os; print('it breaks'); os._exit(5)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ForkServerError, match=r"status 5 \(it breaks\)"):
        ForkServer(["breaks"])


def test_modules_that_start_threads_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "threaded.py").write_text(
        "import threading, time; threading.Thread(target=time.sleep, args=[30], daemon=True).start()"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ForkServerError, match="run 1 threads once imported"):
        ForkServer(["threaded"])


@pytest.mark.parametrize("how", ["closed", "killed", "its owner killed"])
def test_nothing_that_was_forked_outlives_the_server(how: str, tmp_path: Path) -> None:
    """Unless the server itself is killed, whose programs say then that their end is not known."""
    if how == "its owner killed":
        code = """
import os, sys, time
from bringup.processes.fork_server import ForkServer
environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
server = ForkServer([])
program = server.program_of([sys.executable, "-c", "import time; time.sleep(60)"], environ)
print(server.start(program, environ).pid, flush=True)
time.sleep(60)
"""
        owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
        with owner:
            assert owner.stdout is not None
            pid = int(owner.stdout.readline())
            owner.kill()
        assert has_ended(pid)
        return
    server = ForkServer([])
    process = start(server, "-c", "import time; time.sleep(60)")
    if how == "killed":
        server._process.kill()
        with pytest.raises(ForkServerError, match="is not known"):
            process.wait(30)
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(ForkServerError, match="was killed by SIGKILL"):
            start(server, "-c", "pass")
    server.close()
    assert has_ended(process.pid)
    process.close()


ANSWERS = """
from bringup.processes.helper import serve
def answer(question):
    print("this is no answer")
    if question == "end":
        raise SystemExit(3)
    return {"asked": question}
serve(answer, first="ready")
"""


def test_a_helper_answers_until_it_ends() -> None:
    with HelperProcess([sys.executable, "-P", "-c", ANSWERS]) as helper:
        assert helper.answer() == "ready"
        assert helper.ask([1, "two"]) == {"asked": [1, "two"]}
        with pytest.raises(HelperEndedError, match=r"^ended with status 3 \(.*this is no answer\)"):
            helper.ask("end")
        with pytest.raises(HelperEndedError, match="ended with status 3"):
            helper.ask("more")


def test_a_helper_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bringup.processes.helper._END_TIMEOUT", 0.1)
    helper = HelperProcess([sys.executable, "-c", "import time; print('1', flush=True); time.sleep(60)"])
    assert helper.answer() == 1
    helper.close()
    assert has_ended(helper.pid)
