"""A seed that fails says what happened, and happens again exactly so."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from .__main__ import main
from .command import run_command
from .run import run_seed
from .test_planted_bugs import let_the_first_leave
from .world import World


def trace_of(seed: int, num_clients: int) -> str:
    worlds: list[World] = []
    run_seed(seed, num_clients, worlds.append)
    return worlds[0].clock.trace


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_a_seed_decides_everything(seed: int) -> None:
    assert trace_of(seed, 12) == trace_of(seed, 12)
    assert trace_of(seed, 12) != trace_of(seed + 1000, 12)


@pytest.mark.parametrize("seed", [6, 7])
def test_the_hash_seed_decides_nothing(seed: int) -> None:
    shown = {run_command("--seed", str(seed), "--peers", "12", hash_seed=text).stdout for text in ("0", "1", "4242")}
    assert len(shown) == 1
    assert "trace" in shown.pop()


def test_the_command_sums_up() -> None:
    done = run_command("--seeds", "20", "--peers", "5", "--first-seed", "100", "--jobs", "2")
    assert (done.returncode, done.stderr) == (0, "")
    assert "20 from 100, 0 failed" in done.stdout


def test_a_failing_seed_shows_its_history_and_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    let_the_first_leave(monkeypatch)
    many = CliRunner().invoke(main, ["--seeds", "1", "--peers", "6"])
    assert many.exit_code == 1
    assert "seed 0 with 6 peers fails: AssertionError: the others are let go" in many.output
    assert "All that happens: python -m tests.simulation --seed 0 --peers 6" in many.output
    assert "Send(message=Leave" in many.output

    one, again = (CliRunner().invoke(main, ["--seed", "0", "--peers", "6"]) for _ in range(2))
    assert one.exit_code == again.exit_code == 1
    assert one.output == again.output
    assert "fails: AssertionError: the others are let go" in one.output
    [trace] = [line.split()[-1] for line in one.output.splitlines() if line.startswith("trace")]
    assert trace in many.output
