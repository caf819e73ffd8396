"""The bench's harness, with clients that bring nothing up."""

from __future__ import annotations

import os
import random
import select
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest
from rich.table import Table

from bringup.commands.bench.host import Host
from bringup.commands.bench.libraries import BRINGUP, INSECURE
from bringup.commands.bench.startup import Row, Settings, draw_trial, startup_table, tls_over_plain
from bringup.commands.bench.trials import Outcome, StartupTrial
from bringup.transport.tcp.interfaces import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# The clients leave a file each in the working directory, so that the tests see what they were given and who still runs.
LIBRARIES = """
    import json, os, pathlib, signal, threading

    class Trivial:
        def load(self):
            pathlib.Path(f"loaded-{os.getpid()}").touch()

        def work(self, assignment, host):
            pathlib.Path(f"client-{assignment.client_id}").write_text(json.dumps([os.getpid(), assignment.jobs]))
            self.come_up(assignment)
            host.returned()
            host.wait_for_order()

        def come_up(self, assignment):
            pass

    class Failing(Trivial):
        def come_up(self, assignment):
            if assignment.client_id == 1:
                raise ValueError("no such device")

    class Dying(Trivial):
        def come_up(self, assignment):
            if assignment.client_id == 2:
                os.write(2, b"a fatal check failed")
                os.kill(os.getpid(), signal.SIGABRT)

    class Hanging(Trivial):
        def come_up(self, assignment):
            if assignment.client_id == 0:
                threading.Event().wait()

    class Born(Trivial):
        def come_up(self, assignment):
            with open("born", "w") as fifo:
                print(os.getpid(), file=fifo)
            threading.Event().wait()

    class Threaded(Trivial):
        def load(self):
            threading.Thread(target=threading.Event().wait, daemon=True).start()

    TRIVIAL, FAILING, DYING, HANGING = Trivial(), Failing(), Dying(), Hanging()
    BORN, THREADED = Born(), Threaded()
"""

Carry = Callable[..., Outcome] if TYPE_CHECKING else object


@pytest.fixture
def carry_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Carry:
    """Carry one trial out on a host of its own."""
    (tmp_path / "bench_libraries.py").write_text(textwrap.dedent(LIBRARIES))
    monkeypatch.chdir(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def carry_out(
        attribute: str, *, spawn: str = "fork", timeout: float = 60.0, early: tuple[int, ...] = ()
    ) -> Outcome:
        ports = tuple(free_ports(3))
        trial = StartupTrial(ports=ports, order=(2, 0, 1), early=early, offset=0.01, timeout=timeout)
        with Host(f"bench_libraries:{attribute}", spawn, environment) as host:
            return host.run(trial)

    return carry_out


@pytest.mark.parametrize("spawn", ["fork", "exec"])
@pytest.mark.parametrize("early", [(), (0,), (1, 2)])
def test_three_clients_are_released_and_timed(
    carry_out: Carry, tmp_path: Path, spawn: str, early: tuple[int, ...]
) -> None:
    outcome = carry_out("TRIVIAL", spawn=spawn, early=early)

    assert outcome.failure is None
    assert 0 <= outcome.value["seconds"] < 60
    assert outcome.value["processor"] > 0
    assert len(list(tmp_path.glob("client-*"))) == 3


def test_a_host_carries_out_trial_after_trial(tmp_path: Path, carry_out: Carry) -> None:
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with Host("bench_libraries:TRIVIAL", "fork", environment) as host:
        outcomes = [
            host.run(StartupTrial(ports=tuple(free_ports(count)), order=tuple(range(count)))) for count in (1, 3, 2)
        ]

    assert [outcome.failure for outcome in outcomes] == [None] * 3


def test_a_client_that_fails_is_named(carry_out: Carry) -> None:
    assert carry_out("FAILING") == Outcome(None, "client 1 failed: ValueError: no such device")


def test_a_client_that_dies_is_named_with_its_last_words(carry_out: Carry) -> None:
    failure = carry_out("DYING").failure

    assert failure is not None
    assert failure.startswith("client 2 was killed by SIGABRT (a fatal check failed")
    assert failure.endswith("before it said 'returned'")


def test_a_client_that_hangs_is_killed_at_the_timeout(carry_out: Carry, tmp_path: Path) -> None:
    outcome = carry_out("HANGING", timeout=0.5)

    assert outcome == Outcome(None, "after 0.5 s 'returned' had not been heard of client 0")
    pids = [int(path.read_text().strip("[]").split(",")[0]) for path in tmp_path.glob("client-*")]
    assert not [pid for pid in pids if _runs(pid)]


COMMAND = """
import sys
from bringup.commands.bench.host import Host
from bringup.commands.bench.startup import StartupTrial
with Host("bench_libraries:BORN", "fork", {"PYTHONPATH": sys.argv[1]}) as host:
    host.run(StartupTrial(ports=(9000, 9001, 9002), order=(0, 1, 2)))
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the end of somebody else's child is seen on Linux alone")
@pytest.mark.usefixtures("carry_out")
def test_no_client_outlives_a_command_that_was_killed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "born")
    command = subprocess.Popen([sys.executable, "-P", "-c", COMMAND, str(tmp_path)])
    with os.fdopen(os.open(tmp_path / "born", os.O_RDWR)) as born:  # open for both, it has no end between two writers
        ends = [os.pidfd_open(int(born.readline())) for _ in range(3)]
    command.kill()
    command.wait()
    for end in ends:
        assert select.select([end], [], [], 60)[0]
        os.close(end)


def test_the_unit_of_ratios_is_grpc_where_it_is_measured() -> None:
    rows = [Row(name, 4, seconds=[seconds]) for name, seconds in (("bringup", 0.3), ("grpc.aio", 0.2))]
    rows[0].processor.append(0.0123)
    assert cells_of(startup_table(rows), "cpu") == ["12.3", "-"]
    assert cells_of(startup_table(rows), "ratio") == ["1.50", "1.00"]
    rows[1] = Row("jax", 4, seconds=[0.9])
    assert cells_of(startup_table(rows), "ratio") == ["1.00", "3.00"]
    assert cells_of(startup_table(rows[:1]), "ratio") == []


def cells_of(table: Table, heading: str) -> list[object]:
    return [cell for column in table.columns if column.header == heading for cell in column.cells]


def test_a_library_that_runs_threads_is_not_forked(carry_out: Carry) -> None:
    failure = carry_out("THREADED").failure

    assert failure == "the library runs 1 threads once imported: measure it with --spawn exec"


def test_a_host_that_cannot_import_the_library_says_why(carry_out: Carry) -> None:
    failure = carry_out("ABSENT").failure

    assert failure is not None
    assert "has no attribute 'ABSENT'" in failure


def test_orders_come_from_the_seed_alone() -> None:
    settings = Settings((8,), 1, 60.0, 7, "together", 0.3, "fork")

    first, second = (draw_trial(settings, 8, random.Random(7)).order for _ in range(2))

    assert first == second
    assert sorted(first) == list(range(8))


@pytest.mark.parametrize(
    ("start_order", "early"), [("together", ()), ("coordinator-last", (1, 2)), ("coordinator-first", (0,))]
)
def test_the_start_order_says_who_is_released_early(start_order: str, early: tuple[int, ...]) -> None:
    settings = Settings((3,), 1, 60.0, 7, start_order, 0.3, "fork")  # type: ignore[arg-type]

    assert draw_trial(settings, 3, random.Random(7)).early == early


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_cost_of_tls_is_the_ratio_of_the_medians() -> None:
    rows = [
        Row(BRINGUP.name, 4, seconds=[0.3, 0.2, 0.4]),
        Row(INSECURE.name, 4, seconds=[0.2, 0.2, 0.1]),
        Row(BRINGUP.name, 16, seconds=[1.0]),
        Row(INSECURE.name, 16, failures=["no reason given"]),
    ]
    assert tls_over_plain(rows) == {4: 0.3 / 0.2}
    assert tls_over_plain(rows[2:]) == tls_over_plain([]) == {}
