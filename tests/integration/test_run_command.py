"""`bringup run` with real processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from bringup.processes import guard_script

# Long enough for a test to fail by its own time-out, should anybody wait for it.
FOREVER = "sleep 600"
STILL_RUNNING_AFTER = 60.0


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "bringup", "run", *arguments]


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command(*arguments), capture_output=True, check=False, timeout=STILL_RUNNING_AFTER, cwd=cwd)


@contextmanager
def running(*arguments: str, cwd: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd) as launcher:
        try:
            yield launcher
        finally:
            launcher.kill()


def wait_for_lines(launcher: subprocess.Popen[bytes], *expected: bytes) -> None:
    assert launcher.stdout is not None
    missing = set(expected)
    while missing:
        line = launcher.stdout.readline()
        assert line, f"the output ended without {missing}"
        missing.discard(line.rstrip())


def by_client(scripts: Mapping[int, str], otherwise: str) -> tuple[str, ...]:
    """A command in which each client does something else."""
    cases = " ".join(f"{client}) {script};;" for client, script in scripts.items())
    return ("--", "sh", "-c", f"case $BRINGUP_CLIENT_ID in {cases} *) {otherwise};; esac")


def summary_of(errors: bytes) -> list[str]:
    """What the launcher itself has said, line by line."""
    lines = errors.decode().splitlines()
    return [line.removeprefix("bringup: ") for line in lines if line.startswith("bringup: ")]


class Witness:
    """A pipe that clients hold open: it ends when the last of them, and of all that they started, is gone."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "witness"
        os.mkfifo(self.path)
        self._descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(self._descriptor, True)

    def wait_until_all_are_gone(self) -> None:
        assert os.read(self._descriptor, 1) == b""
        os.close(self._descriptor)


def test_every_client_knows_who_it_is_and_each_line_says_whose_it_is() -> None:
    script = 'echo "$BRINGUP_CLIENT_ID of $BRINGUP_NUM_CLIENTS"; echo "$BRINGUP_JOBS" >&2'
    done = run("-n", "3", "--", "sh", "-c", script)
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == [b"[0] 0 of 3", b"[1] 1 of 3", b"[2] 2 of 3"]
    errors = sorted(done.stderr.splitlines())
    assert [line[:4] for line in errors] == [b"[0] ", b"[1] ", b"[2] "]
    jobs = {line[4:] for line in errors}
    assert len(jobs) == 1
    assert len(set(jobs.pop().split(b","))) == 3


def test_lines_stay_whole_whatever_is_in_them() -> None:
    code = r"""
import os, threading
def write(descriptor, byte):
    for _ in range(300):
        os.write(descriptor, byte * 2500)
        os.write(descriptor, byte * 2500 + b"\n")
threads = [threading.Thread(target=write, args=(1, b"\xff")), threading.Thread(target=write, args=(2, b"\r"))]
[one.start() for one in threads]; [one.join() for one in threads]
os.write(1, b"no newline")
"""
    arguments = command("-n", "2", "--", sys.executable, "-c", code)
    done = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True, timeout=60)
    *lines, rest = done.stdout.split(b"\n")
    assert rest == b""
    whole = [b"[%d] %s" % (client, byte * 5000) for client in (0, 1) for byte in (b"\xff", b"\r")]
    assert sorted(lines) == sorted(whole * 300 + [b"[0] no newline", b"[1] no newline"])


def test_the_first_failure_is_the_exit_status_and_ends_the_others() -> None:
    done = run("-n", "4", "--grace", "300", *by_client({2: "exit 7"}, FOREVER))
    assert done.returncode == 7
    first, second = summary_of(done.stderr)
    assert re.fullmatch(r"client 2 \(process \d+ on \S+\) failed first, with status 7", first)
    assert second == "clients 0-1, 3 were ended because of it"


def test_a_client_that_fails_because_it_is_ended_is_not_the_first(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "deaf")
    # Client 1 dies once client 0 has said that it is ready to answer the signal with a status of its own.
    waits = "trap 'exit 9' TERM; echo > deaf; sleep 600 & wait"
    done = run("-n", "2", *by_client({0: waits, 1: "read line < deaf; kill -SEGV $$"}, "exit 0"), cwd=tmp_path)
    assert done.returncode == 128 + signal.SIGSEGV
    *waiting, first, second = summary_of(done.stderr)
    assert all(line.startswith("waiting for client 0") for line in waiting), done.stderr  # a shell heeds a signal late
    assert first.endswith("failed first, with SIGSEGV")
    assert second == "client 0 was ended because of it"


def test_success_of_one_client_ends_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "held")
    # Client 1 goes on only when client 0 has gone.
    done = run("-n", "2", *by_client({0: "exec 3> held", 1: "cat held; echo still here"}, "exit 0"), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, b"[1] still here\n")


def test_a_client_that_does_not_end_is_killed_after_the_grace_period(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "deaf")
    stubborn = "trap '' TERM; echo > deaf; while true; do sleep 600; done"
    clients = by_client({0: stubborn, 1: "read line < deaf; exit 4"}, "exit 0")
    done = run("-n", "2", "--grace", "0.2", *clients, cwd=tmp_path)
    assert done.returncode == 4
    assert b"bringup: client 0 (process " in done.stderr
    assert b"was killed, as it had not ended within 0.2 s\n" in done.stderr


def test_what_a_client_leaves_behind_is_ended(tmp_path: Path) -> None:
    witness = Witness(tmp_path)
    done = run("-n", "2", "--", "sh", "-c", f"exec 3> {witness.path}; sleep 600 > /dev/null 2>&1 & echo done")
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, [b"[0] done", b"[1] done"])
    witness.wait_until_all_are_gone()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_passed_on_to_all_clients(number: signal.Signals) -> None:
    name = number.name.removeprefix("SIG")
    # The shell's own child would keep it from running the trap.
    script = f"trap 'echo {name}; exit 3' {name}; echo up; while true; do sleep 3 & wait; done"
    with running("-n", "3", "--", "sh", "-c", script) as launcher:
        wait_for_lines(launcher, b"[0] up", b"[1] up", b"[2] up")
        launcher.send_signal(number)
        output, errors = launcher.communicate(timeout=STILL_RUNNING_AFTER)
    assert launcher.returncode == 128 + number
    assert sorted(output.splitlines()) == [f"[{client}] {name}".encode() for client in range(3)]
    # A shell that is about to wait as the signal comes heeds it when its sleep is over: it is said who is waited for.
    assert all(line.startswith(b"bringup: waiting for client") for line in errors.splitlines()), errors


def test_a_second_signal_does_not_wait_for_the_grace_period() -> None:
    script = "trap 'echo no' INT; echo up; while true; do sleep 3 & wait; done"
    with running("-n", "2", "--grace", "300", "--", "sh", "-c", script) as launcher:
        wait_for_lines(launcher, b"[0] up", b"[1] up")
        launcher.send_signal(signal.SIGINT)
        wait_for_lines(launcher, b"[0] no", b"[1] no")
        launcher.send_signal(signal.SIGINT)
        _, errors = launcher.communicate(timeout=STILL_RUNNING_AFTER)
    assert launcher.returncode == 128 + signal.SIGINT
    assert errors.count(b"was killed, after a second signal") == 2


def test_nobody_outlives_a_launcher_that_is_killed(tmp_path: Path) -> None:
    witness = Witness(tmp_path)
    # Each client has a child, and neither heeds a polite signal.
    script = f"exec 3> {witness.path}; trap '' TERM HUP INT; sleep 600 & echo up; wait"
    with running("-n", "3", "--", "sh", "-c", script) as launcher:
        wait_for_lines(launcher, b"[0] up", b"[1] up", b"[2] up")
        launcher.kill()
    witness.wait_until_all_are_gone()


def test_nobody_outlives_a_launcher_that_is_killed_while_it_starts_them(tmp_path: Path) -> None:
    witness = Witness(tmp_path)
    with running("-n", "64", "--", "sh", "-c", f"exec 3> {witness.path}; echo up; {FOREVER}") as launcher:
        assert launcher.stdout is not None
        launcher.stdout.readline()
        launcher.kill()
    witness.wait_until_all_are_gone()


def test_nothing_is_left_in_the_file_system_by_a_launcher_that_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    (folder / "0.state").touch()
    subprocess.run([sys.executable, guard_script.__file__, "watch", str(folder)], stdin=subprocess.DEVNULL, check=True)
    assert not folder.exists()


def test_clients_are_ended_when_nobody_reads_them_any_more(tmp_path: Path) -> None:
    witness = Witness(tmp_path)
    with running("-n", "2", "--", "sh", "-c", f"exec 3> {witness.path}; while true; do echo more; done") as launcher:
        wait_for_lines(launcher, b"[0] more", b"[1] more")
        assert launcher.stdout is not None
        launcher.stdout.close()
        assert launcher.wait(STILL_RUNNING_AFTER) == 128 + signal.SIGPIPE
    witness.wait_until_all_are_gone()


def test_a_command_that_is_not_there() -> None:
    done = run("-n", "2", "--", "no-such-command")
    assert (done.returncode, done.stdout) == (127, b"")
    assert done.stderr.startswith(b"bringup: command not found: 'no-such-command'")


@pytest.mark.parametrize("word", ["train.py", "-m"])
def test_a_program_of_python_without_python_in_front(word: str) -> None:
    done = run("-n", "2", "--", word, "train")
    assert done.returncode == 127
    assert f"is run by `-- python {word} ...`" in done.stderr.decode()


def test_a_command_that_cannot_be_run(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    done = run("-n", "1", "--", str(script))
    assert done.returncode == 127
    assert done.stderr.startswith(f"[0] bringup: cannot run {str(script)!r}: No such file".encode())


def test_options_of_the_command_are_its_own() -> None:
    assert run("-n", "1", "sh", "-c", 'printf "%s\\n" $0', "-n").stdout == b"[0] -n\n"
    assert run("-n", "0", "--", "true").returncode == 2
    assert run("-n", "1").returncode == 2


def test_a_job_comes_up_under_the_launcher() -> None:
    code = """
import bringup.sync
with bringup.sync.initialize("SIM") as system:
    print(system.client_id, system.num_clients, len(system.devices), system.all_reduce([1])[0])
"""
    done = run("-n", "3", "--", sys.executable, "-P", "-c", code)
    assert (done.returncode, done.stderr) == (0, b"")
    assert sorted(done.stdout.splitlines()) == [f"[{client}] {client} 3 24 3".encode() for client in range(3)]
