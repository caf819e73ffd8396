"""`bringup bench scale`: its figures, its limits, its verdicts, and its trials with clients of no job."""

from __future__ import annotations

import io
import os
import random
import textwrap
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from bringup.commands.bench.host import Host
from bringup.commands.bench.scale.command import Settings, draw_trial
from bringup.commands.bench.scale.figures import Measured, Spread, exponent, growth, spread, subtract
from bringup.commands.bench.scale.limits import FILES, MEMORY, TASKS, Limit, find_limits, shortage
from bringup.commands.bench.scale.report import Row, growth_of, read_measured, scale_tables
from bringup.commands.bench.trials import Outcome, ScaleTrial
from bringup.commands.bench.usage import anonymous_bytes, processor_seconds
from bringup.commands.main import bench
from bringup.errors import ConfigurationError

SETTINGS = Settings(clients=(4,), runs=1, idle=0.1, soak=None, load=0, backend="SIM", timeout=60.0, seed=7, options={})


def trial_of(clients: int = 4) -> ScaleTrial:
    return replace(draw_trial(SETTINGS, clients, random.Random(7)), victim=2)


def test_a_job_has_all_clients_and_loses_one_that_is_not_client_0() -> None:
    for seed in range(20):
        trial = draw_trial(SETTINGS, 3, random.Random(seed))
        assert sorted(trial.order) == [0, 1, 2]
        assert trial.victim in (1, 2)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_the_exponent_of_a_power(power: float) -> None:
    assert exponent([(x, 3 * x**power) for x in (32.0, 64.0, 512.0)]) == pytest.approx(power)


def test_growth_of_a_line() -> None:
    assert growth([(x, 5 + 3 * x) for x in (32.0, 64.0, 512.0)]) == pytest.approx(3)


def test_one_size_has_no_growth() -> None:
    assert exponent([(32.0, 1.0), (32.0, 2.0)]) is None
    assert growth([(32.0, 1.0)]) is None


def test_a_spread_has_client_0_and_the_others() -> None:
    used = subtract({0: 5.0, 1: 3.0, 2: 4.0}, {0: 1.0, 1: 2.0, 2: 2.0, 3: 9.0})
    assert spread(used) == Spread(4.0, 1.5, 2.0)
    assert spread({1: 3.0}) is None
    assert spread({0: 3.0}) is None


def test_the_figures_of_this_process() -> None:
    before, held = processor_seconds(os.getpid()), anonymous_bytes(os.getpid())
    sum(range(100_000))
    after = processor_seconds(os.getpid())
    assert before is not None
    assert after is not None
    assert after > before
    assert held is not None
    assert held > 1 << 20


def test_a_process_that_has_ended_has_no_figures() -> None:
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(pid, 0)
    assert (processor_seconds(pid), anonymous_bytes(pid)) == (None, None)


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (Limit(FILES, 1024, "`ulimit -n`"), "about 2064 open files in one process, and `ulimit -n` allows 1024"),
        (Limit(TASKS, 4096, "/proc/sys/kernel/pid_max"), "about 12064 threads, and /proc/sys/kernel/pid_max allows"),
        (Limit(MEMORY, 4 << 30, "memory.max"), "GiB of memory, and memory.max allows 4 GiB"),
    ],
)
def test_a_limit_that_is_exceeded_is_named(limit: Limit, text: str) -> None:
    complaint = shortage(1000, [Limit(FILES, 1 << 20, "enough"), limit])
    assert complaint is not None
    assert complaint.startswith("1000 clients need ")
    assert text in complaint
    assert shortage(10, [limit]) is None


def test_the_limits_of_a_container(tmp_path: Path) -> None:
    files = {
        "proc/sys/kernel/pid_max": "32768\n",
        "proc/meminfo": "MemTotal: 64 kB\nMemAvailable: 32 kB\n",
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": "1 2 0:3 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        "sys/fs/cgroup/pids.max": "500\n",
        "sys/fs/cgroup/memory.max": "max\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = [limit for limit in find_limits(tmp_path) if not limit.source.startswith("`")]
    assert found == [
        Limit(TASKS, 32768, "/proc/sys/kernel/pid_max"),
        Limit(TASKS, 500, "/sys/fs/cgroup/pids.max"),
        Limit(MEMORY, 32 << 10, "this machine's free memory"),
    ]


def notice(survivor: int, client_id: int = 2, after: float = 0.1, cause: str = "process died") -> dict[str, Any]:
    told = {"error": "PeerFailedError", "text": f"client {client_id} failed", "cause": cause, "missing": []}
    return {"survivor": survivor, "after": after, "client_id": client_id, **told}


def job(*notices: dict[str, Any], **others: Any) -> Outcome:
    used = {"processor": Spread(0.4, 0.03, 0.05), "memory": Spread(3 << 20, 1 << 20, 2 << 20)}
    return Outcome(asdict(Measured(wall=1.5, idle=Spread(0.02, 0.001, 0.002), notices=list(notices), **used, **others)))


def test_a_job_that_all_survivors_were_told_right_of() -> None:
    row = Row(4)
    assert row.add(trial_of(), job(notice(0, after=0.1), notice(1, after=0.3), notice(3))) == []
    found = row.as_object()
    assert (found["clients"], found["wall"], found["told"], found["wrong"], found["failures"]) == (4, 1.5, 0.3, [], [])
    assert found["processor"] == {"first": 0.4, "mean": 0.03, "largest": 0.05}
    assert [one["notices"] for one in found["jobs"]] == [3]


def test_a_survivor_that_was_told_of_another_client() -> None:
    row = Row(4)
    (problem,) = row.add(trial_of(), job(notice(0), notice(1, client_id=3), notice(3)))
    assert problem == "client 1 was told, after client 2 was killed: PeerFailedError: client 3 failed"
    assert row.wrong == [problem]


def test_many_wrong_notices_are_counted() -> None:
    problems = Row(9).add(trial_of(), job(*(notice(one, client_id=8) for one in range(5))))
    assert len(problems) == 4
    assert problems[-1] == "and 2 more"


def test_a_false_alarm() -> None:
    row = Row(4)
    told = [notice(0, after=7.5), notice(1, after=7.25), notice(2, after=7.5), notice(3, after=7.5)]
    problems = row.add(trial_of(), job(*told, alarm_after=7.4))
    assert problems[0] == (
        "false alarm 7.2 s after all were up, before any fault: client 1 was told: PeerFailedError: client 2 failed"
    )
    assert (len(row.wrong), row.told) == (4, [])


def test_a_job_that_did_not_come_up() -> None:
    row = Row(4)
    reason = "client 3 failed: CoordinatorLostError: lost"
    failed = Measured(failed_after=12.3, processor=Spread(9.5, 0.1, 0.2), failure=reason)
    (problem,) = row.add(trial_of(), Outcome(asdict(failed)))
    assert problem == f"failed after 12.3 s, with 9.50 s of client 0's processor time: {reason}"
    assert row.spread("processor") is None
    assert growth_of([row]) == {"exponent": None, "last_exponent": None, "bytes_per_client": None}


def test_a_host_that_ended() -> None:
    row = Row(4)
    assert row.add(trial_of(), Outcome(failure="the host ended")) == ["the host ended"]
    assert row.failures == ["the host ended"]


def test_the_tables_have_a_line_for_each_number_of_clients() -> None:
    rows = [Row(4), Row(8)]
    rows[0].add(trial_of(), job(notice(0), notice(1), notice(3)))
    rows[1].add(trial_of(), Outcome(asdict(Measured(failed_after=1.0, failure="client 0 failed"))))
    console = Console(width=80, file=io.StringIO())
    with console.capture() as capture:
        console.print(*scale_tables(rows))
    lines = [line.split() for line in capture.get().splitlines() if line.split()[:1] in (["4"], ["8"])]
    assert lines == [
        ["4", "0.400", "100.00", "0.0300", "0.0500", "1.50", "right"],
        ["8", "-", "-", "-", "-", "-", "1", "failed"],
        ["4", "2.00", "0.10", "3.0", "1.0", "100"],
        ["8", "-", "-", "-", "-", "-"],
    ]


# The victim holds a lock, which the survivors get when it ends.
LIBRARIES = """
    import fcntl, os, time

    TOLD = {"error": "E", "text": "t", "client_id": 2, "cause": "c", "missing": []}

    class Noticing:
        def load(self):
            pass

        def work(self, assignment, host):
            self.come_up(assignment, host)
            lock = os.open("lock", os.O_CREAT)
            if assignment.client_id == 2:
                fcntl.flock(lock, fcntl.LOCK_EX)
                os.open("held", os.O_CREAT)
                host.returned()
                os.read(os.pipe()[0], 1)
            while not os.path.exists("held"):
                os.sched_yield()
            host.returned()
            fcntl.flock(lock, fcntl.LOCK_SH)
            host.say("told", {"at": time.monotonic(), **TOLD})
            host.wait_for_order()

        def come_up(self, assignment, host):
            pass

    class Failing(Noticing):
        def come_up(self, assignment, host):
            if assignment.client_id == 1:
                raise ValueError("no such device")

    class Alarmed(Noticing):
        def come_up(self, assignment, host):
            host.returned()
            host.say("told", {"at": time.monotonic(), **TOLD})
            host.wait_for_order()

    NOTICING, FAILING, ALARMED = Noticing(), Failing(), Alarmed()
"""

Run = Callable[[str], Measured]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Carry one run out on a host of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scale_libraries.py").write_text(textwrap.dedent(LIBRARIES))
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}

    def run(attribute: str) -> Measured:
        with Host(f"scale_libraries:{attribute}", "fork", environment) as host:
            outcome = host.run(trial_of())
        assert outcome.failure is None
        return read_measured(outcome.value)

    return run


def test_a_job_is_measured_to_its_end(run: Run) -> None:
    found = run("NOTICING")
    assert found.failure is None
    assert found.wall is not None
    assert 0 < found.wall < 60
    for figures in (found.processor, found.memory, found.idle):
        assert figures is not None
        assert 0 <= figures.mean <= figures.largest
    assert sorted(one["survivor"] for one in found.notices) == [0, 1, 3]
    assert all(0 <= one["after"] < 60 for one in found.notices)


def test_the_client_that_failed_is_named_with_the_time(run: Run) -> None:
    found = run("FAILING")
    assert found.failure == "client 1 failed: ValueError: no such device"
    assert found.failed_after is not None
    assert (found.wall, found.idle, found.notices) == (None, None, [])


def test_an_alarm_of_an_idle_job_is_heard_of_all(run: Run) -> None:
    found = run("ALARMED")
    assert found.alarm_after is not None
    assert sorted(one["survivor"] for one in found.notices) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--clients", "2,4"), "not a list of numbers of 3 or more"),
        (("--soak", "0"), "not in the range x>0"),
        (("--backend", "TPU"), "'TPU' is not one of"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments: tuple[str, ...], complaint: str) -> None:
    result = CliRunner().invoke(bench, ["scale", *arguments])
    assert result.exit_code == 2
    assert complaint in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--group-size", "1"), "group_size=1 (argument) must be 0, for no groups, or at least 2"),
        (("--heartbeat-interval", "5", "--heartbeat-timeout", "2"), "must be greater than heartbeat_interval=5"),
    ],
)
def test_options_that_no_client_would_take_are_refused_once(arguments: tuple[str, ...], complaint: str) -> None:
    result = CliRunner().invoke(bench, ["scale", *arguments])
    assert isinstance(result.exception, ConfigurationError)
    assert complaint in str(result.exception)


def test_more_clients_than_this_machine_can_run_are_refused_before_any_is_forked() -> None:
    result = CliRunner().invoke(bench, ["scale", "--clients", "3,10000000"])
    assert str(result.exception).startswith("10000000 clients need about ")
