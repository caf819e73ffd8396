"""`bringup bench services`: its figures, its wrong answers, and its trials with clients of no job."""

from __future__ import annotations

import io
import json
import os
import textwrap
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from bringup.commands.bench.host import Host
from bringup.commands.bench.runner import Hosts
from bringup.commands.bench.services.command import (
    Row,
    Settings,
    is_sound,
    services_command,
    services_table,
    shown_value,
    tls_over_plain,
)
from bringup.commands.bench.services.figures import Figure, Task, evaluate, meeting_of, rate_of
from bringup.commands.bench.services.work import crowd_result, meet_in_threads, take_part
from bringup.commands.bench.trials import Outcome, ServiceTrial
from bringup.commands.bench.worker import Assignment

if TYPE_CHECKING:
    from pathlib import Path


def measured(samples: dict[str, float], *wrong: str) -> Outcome:
    return Outcome({"samples": samples, "wrong": list(wrong)})


SETTINGS = Settings(
    runs=1, calls=40, rounds=30, clients=(8,), barriers=(4, 16), crowds=(64, 256, 1024), loop="asyncio", timeout=20.0
)
BARS = {
    "get of 100 B": 80e-6,
    "set of 100 B": 80e-6,
    "get of 100 KB": 0.25e-3,
    "set of 100 KB": 0.5e-3,
    "gets a second, 8 clients": 25_000,
    "barrier of 4 processes": 0.25e-3,
    "barrier of 16 processes": 0.7e-3,
    "barrier of 64 tasks": 4e-3,
    "barrier of 256 tasks": 15e-3,
    "barrier of 1,024 tasks": 80e-3,
    "1,024 tasks connect": 0.75,
}


def test_all_bars_are_lines_of_the_table() -> None:
    figures = [figure for task in SETTINGS.tasks() for figure in task.figures]
    assert {figure.words: figure.bar for figure in figures if figure.bar is not None} == BARS
    assert len({figure.words for figure in figures}) == len(figures)
    other = Settings(1, 40, 30, (2,), (3,), (5,), "asyncio", 20.0)
    assert not any(figure.bar for task in other.tasks()[1:] for figure in task.figures)


def test_a_crowd_meets_less_often_and_every_process_has_a_port() -> None:
    trials = {task.kind: SETTINGS.trial(task) for task in SETTINGS.tasks()[::2]}
    assert [(len(trial.ports), trial.rounds) for trial in trials.values()] == [(2, 30), (4, 30), (2, 3)]
    assert len(SETTINGS.trial(Task("rate", 8)).ports) == 9


def test_a_bar_is_a_bound_on_seconds_and_a_least_rate() -> None:
    assert Figure("k", "w", 1, 2.0).is_within(2.0)
    assert Figure("k", "w", 1, 2.0).is_within(2.1) is False
    assert Figure("k", "w", 1, 2.0, is_rate=True).is_within(2.1)
    assert Figure("k", "w", 1, 2.0, is_rate=True).is_within(1.9) is False
    assert Figure("k", "w", 1).is_within(1.9) is None


def test_a_barrier_takes_what_a_client_waits_in_it() -> None:
    assert meeting_of([[0.0, 10.0, 20.0], [1.0, 10.0, 20.0]], [[2.0, 11.0, 21.0], [2.0, 12.0, 24.0]]) == (2.0, [])


def test_a_barrier_that_lets_somebody_go_early_is_wrong() -> None:
    _, wrong = meeting_of([[0.0, 5.0], [0.5, 6.0], [0.2, 5.5]], [[1.0, 7.0], [1.0, 7.0], [1.0, 5.8]])
    assert wrong == ["round 1 of the barrier let client 2 go before client 1 had come"]


def test_a_rate_counts_from_the_first_beginning_to_the_last_end() -> None:
    assert rate_of(10, [(1.0, 2.0), (1.5, 5.0)]) == 5.0


def test_what_the_clients_say_becomes_one_outcome() -> None:
    calls = {0: {"samples": {"own get": 1.0}, "wrong": []}, 1: {"samples": {"get": 2.0}, "wrong": ["a lie"]}}
    assert evaluate(Task("calls", 1), 9, calls) == ({"own get": 1.0, "get": 2.0}, ["client 1: a lie"])
    rate = {0: {}, 1: {"began": 0.0, "ended": 2.0, "wrong": []}}
    assert evaluate(Task("rate", 1), 9, rate) == ({"rate": 4.5}, [])
    meeting = {0: {"entered": [0.0], "left": [0.5]}, 1: {"entered": [1.0], "left": [2.0]}}
    assert evaluate(Task("barrier", 2), 9, meeting) == (
        {"barrier": 1.0},
        ["round 0 of the barrier let client 0 go before client 1 had come"],
    )


def test_the_first_round_of_a_crowd_is_its_connecting() -> None:
    found = crowd_result(1.0, [[(1.5, 4.0), (4.0, 5.0)], [(2.0, 3.0), (4.5, 5.0)]])
    assert found == {"samples": {"barrier of tasks": 1.0, "connect": 3.0}, "wrong": []}


def test_threads_connect_once_and_meet_in_every_round() -> None:
    met: list[tuple[int, int]] = []
    barrier = threading.Barrier(3)

    def connect(client_id: int) -> Callable[[int], None]:
        def meet(number: int) -> None:
            met.append((client_id, number))
            barrier.wait(10)

        barrier.wait(10)
        return meet

    found = meet_in_threads(3, 2, connect)
    assert sorted(met) == [(client_id, number) for client_id in range(3) for number in range(2)]
    assert found["wrong"] == []
    assert found["samples"].keys() == {"barrier of tasks", "connect"}


def test_a_thread_that_fails_fails_the_crowd() -> None:
    def connect(client_id: int) -> Callable[[int], None]:
        raise ValueError("no such service")

    with pytest.raises(ValueError, match="no such service"):
        meet_in_threads(2, 1, connect)


class Alone:
    """A store with one client, which may lie."""

    def __init__(self, lie: bytes | None = None) -> None:
        self.held: dict[str, bytes] = {}
        self.lie = lie

    async def get(self, key: str) -> bytes:
        return self.held[key] if self.lie is None else self.lie

    async def set(self, key: str, value: bytes) -> None:
        self.held[key] = value

    async def meet(self, name: str, number: int) -> None:
        pass

    def blocking(self) -> Alone | None:
        return None


async def part(face: Alone, kind: str, client_id: int) -> dict[str, Any]:
    orders = {"kind": kind, "clients": 1, "calls": 20, "rounds": 3, "loop": "asyncio"}
    return await take_part(face, Assignment(client_id, (1, 2), orders))


async def test_one_client_times_its_calls_and_then_the_host_its_own() -> None:
    assert (await part(Alone(), "calls", 1))["samples"].keys() == {"get", "set", "large get", "large set"}
    assert (await part(Alone(), "calls", 0))["samples"].keys() == {"own get", "own set"}
    for client_id in (0, 1):
        assert (await part(Alone(), "calls", client_id))["wrong"] == []


async def test_an_answer_that_was_not_set_is_wrong() -> None:
    wrong = [*(await part(Alone(b"a lie"), "calls", 1))["wrong"], *(await part(Alone(b"a lie"), "rate", 1))["wrong"]]
    assert [text.split(", and not ")[0] for text in wrong] == [
        "20 gets of 'bench/small' gave b'a lie'",
        "2 gets of 'bench/large' gave b'a lie'",
        "20 gets of 'rate' gave b'a lie'",
    ]


async def test_a_barrier_is_stamped_in_every_round() -> None:
    told = await part(Alone(), "barrier", 1)
    assert (len(told["entered"]), len(told["left"])) == (3, 3)


# Trials. Their clients report what a test wrote, and call nothing.

LIBRARIES = """
    import json, pathlib

    class Told:
        def load(self):
            pass

        def work(self, assignment, host):
            if assignment.orders["kind"] == "crowd" and assignment.client_id == 0:
                host.say("serving", None)
                host.wait_for_order()
                while True:
                    pass
            if assignment.orders["kind"] == "crowd":
                host.wait_for_order()
            host.say("measured", json.loads(pathlib.Path("told").read_text())[assignment.client_id])
            host.wait_for_order()

    class Failing(Told):
        def work(self, assignment, host):
            raise ValueError("no such service")

    TOLD, FAILING = Told(), Failing()
"""

Carry = Callable[..., Outcome]


@pytest.fixture
def carry_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Carry:
    """Carry one trial out on a host of its own."""
    (tmp_path / "bench_services_libraries.py").write_text(textwrap.dedent(LIBRARIES))
    monkeypatch.chdir(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def carry_out(attribute: str, task: Task, told: list[dict[str, Any]]) -> Outcome:
        (tmp_path / "told").write_text(json.dumps(told))
        with Host(f"bench_services_libraries:{attribute}", "fork", environment) as host:
            return host.run(replace(SETTINGS, calls=10, timeout=60.0).trial(task))

    return carry_out


def test_what_the_processes_measured_is_the_outcome(carry_out: Carry) -> None:
    told = [{"entered": [0.0], "left": [1.0]}, {"entered": [0.5], "left": [1.0]}]
    assert carry_out("TOLD", Task("barrier", 2), told) == measured({"barrier": 1.0})


def test_a_crowd_is_measured_by_one_process_and_its_server_is_killed(
    carry_out: Carry,
) -> None:
    samples = {"connect": 0.5, "barrier of tasks": 0.25}
    outcome = carry_out("TOLD", Task("crowd", 64), [{}, {"samples": samples, "wrong": ["a lie"]}])
    assert outcome == measured(samples, "client 1: a lie")


def test_a_client_that_fails_fails_the_run(carry_out: Carry) -> None:
    outcome = carry_out("FAILING", Task("calls", 1), [])
    assert outcome.value is None
    assert outcome.failure is not None
    assert "failed: ValueError: no such service" in outcome.failure


# What is printed.


def row(library: str, figure: Figure, *outcomes: Outcome) -> Row:
    made = Row(library, figure)
    for outcome in outcomes:
        made.add(outcome)
    return made


GET = Figure("get", "get of 100 B", 1, 80e-6)
FAILED = Outcome(failure="it hung")


def test_a_row_has_a_sample_of_each_run_and_its_median_is_held_to_the_bar() -> None:
    found = row("bringup", GET, *(measured({"get": value}) for value in (70e-6, 60e-6, 90e-6)), FAILED).as_object()
    assert (found["samples"], found["median"], found["within"]) == ([70e-6, 60e-6, 90e-6], 70e-6, True)
    assert (found["failures"], found["wrong"], found["library"], found["bar"]) == (["it hung"], [], "bringup", 80e-6)
    assert row("bringup", GET, FAILED).as_object()["within"] is None


def test_a_figure_that_a_library_does_not_have_is_no_failure() -> None:
    only = row("jax", Figure("blocking get", "get of 100 B, sync", 1), measured({"get": 1.0}))
    assert (only.samples, only.failures) == ([], [])


def test_the_cost_of_tls_is_a_ratio_of_times_whatever_the_figure() -> None:
    rate = Figure("rate", "gets a second", 1, is_rate=True)
    rows = [
        row("bringup", GET, measured({"get": 90e-6})),
        row("bringup, insecure", GET, measured({"get": 60e-6})),
        row("bringup", rate, measured({"rate": 10_000.0})),
        row("bringup, insecure", rate, measured({"rate": 20_000.0})),
    ]
    assert tls_over_plain(rows) == {GET: pytest.approx(1.5), rate: pytest.approx(2.0)}
    console = Console(width=80, file=io.StringIO())
    with console.capture() as capture:
        console.print(services_table(rows, "bringup"))
    assert "TLS / plain" in capture.get()
    assert "2.00" in capture.get()
    assert tls_over_plain(rows[:1]) == {}


def test_the_table_fits_a_terminal_and_has_all_libraries_beside_one_another() -> None:
    rows = [
        row("bringup", GET, measured({"get": 70e-6})),
        row("jax", GET, FAILED),
        row("TCPStore", GET, measured({})),
    ]
    console = Console(width=80, file=io.StringIO())
    with console.capture() as capture:
        console.print(services_table(rows, "bringup"))
    text = capture.get()
    (line,) = (line.split() for line in text.splitlines() if line.strip().startswith("get of 100 B"))
    assert line == ["get", "of", "100", "B", "80", "us", "70", "us", "within", "failed", "-"]
    assert "…" not in text


def test_values_are_shown_in_the_unit_that_their_size_asks_for() -> None:
    assert [shown_value(GET, value) for value in (36.4e-6, 0.25e-3, 15e-3, 0.75)] == [
        "36 us",
        "0.25 ms",
        "15.00 ms",
        "750 ms",
    ]
    assert shown_value(Figure("rate", "gets", 8, is_rate=True), 25_000.4) == "25,000/s"


def test_only_a_wrong_answer_or_a_failed_run_of_bringup_is_unsound() -> None:
    slow = row("bringup", GET, measured({"get": 99.0}))
    assert is_sound([slow, row("jax", GET, FAILED)], "bringup")
    assert not is_sound([row("bringup", GET, FAILED)], "bringup")
    assert not is_sound([slow, row("jax", GET, measured({"get": 1.0}, "a lie"))], "bringup")


@pytest.mark.parametrize(("wrong", "status"), [((), 0), (("a lie",), 1)])
def test_the_exit_status_says_whether_an_answer_was_wrong(
    monkeypatch: pytest.MonkeyPatch, wrong: tuple[str, ...], status: int
) -> None:
    def answer(_hosts: Hosts, _program: str, trial: ServiceTrial) -> Outcome:
        figures = Task(trial.kind, trial.clients).figures
        return measured({figure.key: 1e-9 if figure.is_rate else 9e9 for figure in figures}, *wrong)

    monkeypatch.setattr(Hosts, "run", answer)
    result = CliRunner().invoke(services_command, ["--only", "bringup", "--runs", "2", "--json"])
    assert result.exit_code == status, result.output
    found = json.loads(result.stdout)
    assert all(one["within"] is (None if one["bar"] is None else False) for one in found["rows"])
    assert {one["library"] for one in found["rows"]} == {"bringup"}


def test_a_barrier_of_one_is_refused_with_what_to_write() -> None:
    result = CliRunner().invoke(services_command, ["--barriers", "1"])
    assert result.exit_code == 2
    words = " ".join(result.output.split())
    assert "'1' is not a list of numbers of 2 or more of clients; write for example 4,16,64" in words
