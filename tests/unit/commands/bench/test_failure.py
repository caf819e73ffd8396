"""`bringup bench failure`: its faults, its verdict on the notices, and its trials with clients of no job."""

from __future__ import annotations

import io
import os
import random
import textwrap
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from bringup.commands.bench.failure.client import Sighting
from bringup.commands.bench.failure.faults import (
    CATALOGUE,
    Fault,
    Kind,
    Limits,
    Notice,
    complaints,
    draw_trial,
)
from bringup.commands.bench.failure.report import FaultRow, faults_table, libraries_table, notices_of
from bringup.commands.bench.host import Host
from bringup.commands.bench.libraries import describe
from bringup.commands.bench.trials import FaultTrial, Outcome
from bringup.commands.main import bench
from bringup.errors import CoordinatorLostError, PeerFailedError, RendezvousTimeoutError
from bringup.transport.tcp.interfaces import free_ports

LIMITS = Limits(heartbeat_interval=0.2, heartbeat_timeout=2.0, deadline=3.0)
PORTS = (9000, 9001, 9002, 9003)


def trial_of(fault: Fault, seed: int = 0) -> FaultTrial:
    return draw_trial(fault, PORTS, LIMITS, 10.0, random.Random(seed))


@pytest.mark.parametrize("fault", CATALOGUE, ids=lambda fault: f"{fault.title} {fault.phase}")
def test_a_run_has_a_victim_of_its_kind_and_at_least_one_survivor(fault: Fault) -> None:
    for seed in range(20):
        trial = draw_trial(fault, PORTS[:3], LIMITS, 10.0, random.Random(seed))
        assert (trial.victim == 0) == (fault.victim == "coordinator")
        assert (trial.victim in trial.order) == (fault.kind != "missing")
        assert trial.survivors
        waits = fault.phase in ("rendezvous", "connect")
        assert len(trial.order) == (2 if waits else 3)


def test_a_run_comes_from_its_seed_alone() -> None:
    fault = Fault("kill", "client", "rendezvous")
    assert trial_of(fault, 7) == trial_of(fault, 7)
    assert len({(trial_of(fault, seed).victim, tuple(trial_of(fault, seed).order)) for seed in range(20)}) > 3


@pytest.mark.parametrize(
    ("kind", "options", "floor", "bound"),
    [
        ("kill", {}, 0.0, 0.25),
        ("raise", {}, 0.0, 0.25),
        ("exit", {}, 0.0, 0.25),
        ("stop", {"heartbeat_interval": 0.2, "heartbeat_timeout": 2.0}, 1.7, 3.0),
        ("missing", {"initialization_timeout": 3.0}, 3.0, 3.5),
    ],
)
def test_the_bounds(kind: Kind, options: dict[str, float], floor: float, bound: float) -> None:
    fault = Fault(kind, "client", "idle")
    assert LIMITS.options(fault) == options
    assert LIMITS.floor(fault) == pytest.approx(floor)
    assert LIMITS.bound(fault) == bound


def notice_of(error: Exception, after: float = 0.1) -> Notice:
    return Notice(survivor=1, after=after, **describe(error))


def peer_failed(cause: str, client_id: int = 2, text: str = "") -> PeerFailedError:
    return PeerFailedError(text, client_id=client_id, cause=cause)


RIGHT: list[tuple[Kind, Exception]] = [
    ("kill", peer_failed("process died (connection refused)")),
    ("raise", peer_failed("RuntimeError: the fault that is measured")),
    ("exit", peer_failed("SystemExit: its interpreter ended without shutdown()")),
    ("stop", peer_failed("no heartbeat for 2.0 s")),
    ("missing", RendezvousTimeoutError("1 of 4 did not come", missing={2: "h2:9000"})),
]
WRONG: list[tuple[Kind, Exception]] = [
    ("kill", peer_failed("process died (connection refused)", client_id=3)),
    ("kill", peer_failed("process died", text="client 2 failed. Clients that failed with it: 3")),
    ("kill", peer_failed("no heartbeat for 10.0 s")),
    ("kill", CoordinatorLostError("lost", client_id=0, cause="process died")),
    ("kill", RuntimeError("something else")),
    ("raise", peer_failed("process died (connection refused)")),
    ("exit", peer_failed("RuntimeError: something")),
    ("stop", peer_failed("process died (connection refused)")),
    ("stop", peer_failed("no heartbeat for 1.9 s")),
    ("missing", RendezvousTimeoutError("2 of 4 did not come", missing={2: "h2:9000", 3: "h3:9000"})),
    ("missing", peer_failed("process died")),
]


def complaints_of(kind: Kind, notices: Collection[Notice], victim: int = 2) -> list[str]:
    phase = "rendezvous" if kind == "missing" else "idle"
    return list(complaints(replace(trial_of(Fault(kind, "client", phase)), victim=victim), notices))


@pytest.mark.parametrize(("kind", "error"), RIGHT)
def test_the_right_client_and_cause_are_no_complaint(kind: Kind, error: Exception) -> None:
    assert complaints_of(kind, [notice_of(error)]) == []


@pytest.mark.parametrize(("kind", "error"), WRONG)
def test_another_client_or_cause_is_one(kind: Kind, error: Exception) -> None:
    (complaint,) = complaints_of(kind, [notice_of(error)])
    assert complaint.startswith("client 1 was told, after client 2 ")
    assert complaint.endswith(f"{type(error).__name__}: {error}")


@pytest.mark.parametrize("error", [CoordinatorLostError, PeerFailedError])
def test_a_coordinator_may_be_called_either(error: type[PeerFailedError]) -> None:
    assert complaints_of("kill", [notice_of(error("", client_id=0, cause="the connection broke"))], victim=0) == []


def test_nobody_is_told_before_the_fault() -> None:
    (complaint,) = complaints_of("kill", [notice_of(peer_failed("process died"), after=-0.001)])
    assert complaint.startswith("client 1 was told before the fault: PeerFailedError")


def row_of(*runs: tuple[float, float], floor: float = 0.0) -> FaultRow:
    fault = Fault("kill", "client", "idle")
    row, trial = FaultRow("bringup", fault, 4, 0.25, floor), replace(trial_of(fault), victim=2)
    for first, last in runs:
        outcome = Outcome([asdict(notice_of(peer_failed("process died"), after)) for after in (last, first)])
        assert row.add(trial, outcome) == []
    return row


def test_the_verdict_is_the_medians() -> None:
    assert row_of((0.1, 0.2), (0.1, 0.24), (0.1, 9.0)).verdict == "within"
    assert row_of((0.1, 0.26), (0.1, 0.24), (0.1, 9.0)).verdict == "beyond"
    assert row_of((0.1, 0.2), (0.01, 0.2), floor=0.05).verdict == "early"
    assert row_of().verdict == "-"


def test_a_row_is_complete_as_json() -> None:
    row = row_of((0.1, 0.2), (0.05, 0.3))
    assert row.add(trial_of(row.fault), Outcome(failure="client 3 hung")) == ["client 3 hung"]
    found = row.as_object()
    assert (found["last"], found["first"], found["failures"]) == ([0.2, 0.3], [0.1, 0.05], ["client 3 hung"])
    assert (found["median"], found["max"], found["told_as"]) == (0.25, 0.3, {"PeerFailedError": 4})


def test_the_table_has_a_line_for_each_fault_and_number_of_clients() -> None:
    rows = [row_of((0.1, 0.2)), row_of((0.05, 0.3))]
    console = Console(width=80, file=io.StringIO())
    with console.capture() as capture:
        console.print(faults_table(rows))
    lines = [line.split() for line in capture.get().splitlines() if line.split()[:1] == ["SIGKILL"]]
    assert lines == [
        ["SIGKILL", "client", "idle", "4", "200", "200", "100", "250", "within"],
        ["SIGKILL", "client", "idle", "4", "300", "300", "50.0", "250", "beyond"],
    ]


def test_the_table_of_other_libraries_has_the_end_of_each_survivor() -> None:
    row = FaultRow("jax", Fault("kill", "coordinator", "idle"), 4, None, 0.0)
    ends = [asdict(replace(notice_of(RuntimeError("gone")), error="was killed by SIGABRT"))] * 3
    assert row.add(trial_of(row.fault), Outcome(ends)) == []
    console = Console(width=80, file=io.StringIO())
    with console.capture() as capture:
        console.print(libraries_table([row]))
    words = " ".join(capture.get().split())
    assert "jax SIGKILL coordinator idle 100 100 100 was killed by SIGABRT" in words


@dataclass
class FakeMember:
    client_id: int
    last_heartbeat_age: float


class FakeSystem:
    def __init__(self, client_id: int, ages: list[float]) -> None:
        self.client_id = client_id
        self.members = tuple(FakeMember(*pair) for pair in enumerate(ages))


@pytest.mark.parametrize(
    ("ages", "overdue"),
    [
        ([0.9, 0.0, 0.9, 0.9], set()),
        ([0.1, 0.0, 1.7, 0.1], {2}),
        ([1.6, 0.0, 1.6, 1.6], {0}),
        ([1.6, 0.0, 1.6, 3.3], {0, 3}),
    ],
)
def test_a_watcher_tells_a_late_client_from_a_late_coordinator(ages: list[float], overdue: set[int]) -> None:
    sighting = Sighting(1.0)
    sighting.look(FakeSystem(1, ages))  # type: ignore[arg-type]
    assert (sighting.overdue, sighting.largest_age) == (overdue, max(ages))


# The victim holds a lock, which the survivors get when it ends.
LIBRARIES = """
    import fcntl, os, time

    class Noticing:
        def load(self):
            pass

        def work(self, assignment, host):
            lock = os.open("lock", os.O_CREAT)
            if assignment.orders["part"] == "survivor":
                while not os.path.exists("held"):
                    os.sched_yield()
                host.say("placed", None)
                fcntl.flock(lock, fcntl.LOCK_SH)
                self.tell(assignment, host)
            else:
                fcntl.flock(lock, fcntl.LOCK_EX)
                os.open("held", os.O_CREAT)
                host.say("placed", None)
                host.wait_for_order()
                host.say("struck", time.monotonic())
                raise RuntimeError

        def tell(self, assignment, host):
            told = {"error": "E", "text": "t", "client_id": 1, "cause": "c", "missing": []}
            host.say("told", {"at": time.monotonic(), **told})

    class Deaf(Noticing):
        def tell(self, assignment, host):
            if assignment.client_id == 2:
                os.read(os.pipe()[0], 1)
            super().tell(assignment, host)

    class Dying(Noticing):
        def tell(self, assignment, host):
            if assignment.client_id == 2:
                os._exit(5)
            super().tell(assignment, host)

    NOTICING, DEAF, DYING = Noticing(), Deaf(), Dying()
"""

Run = Callable[..., Outcome]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Carry one run out on a host of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "failure_libraries.py").write_text(textwrap.dedent(LIBRARIES))
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}

    def run(attribute: str, kind: Kind = "kill", *, patience: float = 60.0, may_end: bool = False) -> Outcome:
        trial = replace(trial_of(Fault(kind, "client", "idle")), victim=1, patience=patience, may_end=may_end)
        with Host(f"failure_libraries:{attribute}", "fork", environment) as host:
            return host.run(trial)

    return run


@pytest.mark.parametrize("kind", ["kill", "raise"])
def test_every_survivor_is_timed(run: Run, kind: Kind) -> None:
    outcome = run("NOTICING", kind)
    assert outcome.failure is None
    assert sorted(one.survivor for one in notices_of(outcome)) == [0, 2, 3]
    assert all(0 <= one.after < 60 for one in notices_of(outcome))
    assert {(one.error, one.client_id, one.cause) for one in notices_of(outcome)} == {("E", 1, "c")}


def test_a_survivor_that_hears_nothing_has_hung(run: Run) -> None:
    assert run("DEAF", patience=0.5) == Outcome(None, "after 0.5 s 'told' had not been heard of client 2")


def test_a_survivor_that_ends_is_a_failure(run: Run) -> None:
    assert run("DYING").failure == "client 2 ended with status 5 before it said 'told'"


def test_a_survivor_of_another_library_may_be_told_by_its_end(run: Run) -> None:
    ends = {one.survivor: one.error for one in notices_of(run("DYING", may_end=True))}
    assert ends == {0: "E", 2: "ended with status 5", 3: "E"}


def test_ports_are_none_that_anybody_may_be_given() -> None:
    ports = free_ports(64)
    assert len(set(ports)) == 64
    assert all(1024 < port < 32768 for port in ports)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--clients", "2,4"), "not a list of numbers of 3 or more"),
        (("--clients", "four"), "not a list of numbers"),
        (("--heartbeat-timeout", "0.2"), "greater than --heartbeat-interval"),
        (("--only", "fire"), "'fire' is not one of"),
        (("--alarms", "0"), "not in the range x>0"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments: tuple[str, ...], complaint: str) -> None:
    result = CliRunner().invoke(bench, ["failure", *arguments])
    assert result.exit_code == 2
    assert complaint in " ".join(result.output.split())
