"""Seeds drawn at random: whatever befalls a job, everybody hears of it in time, and the next one comes up."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable

import pytest

from .campaign import Summary, replay_command, run_seeds
from .command import run_command
from .scenario import KINDS

PEERS = 50
AT_ONCE = 250


def run(seeds: Iterable[int], num_clients: int) -> Summary:
    """Run seeds; fails with the history of the first that fails."""
    summary = Summary()
    for part in run_seeds(seeds, num_clients):
        summary.merge(part)
        for failure in part.failures:
            again = f"All that happens: {replay_command(failure.seed, num_clients)}"
            pytest.fail(f"seed {failure.seed}: {failure.what}\n{failure.history}\n{again}", pytrace=False)
    return summary


@pytest.mark.parametrize("first_seed", range(0, 1000, AT_ONCE))
def test_a_thousand_seeds_of_50_peers(first_seed: int) -> None:
    """In processes of their own, on all processors."""
    counts = {"--seeds": AT_ONCE, "--first-seed": first_seed, "--peers": PEERS, "--jobs": os.cpu_count() or 1}
    done = run_command(*(str(word) for option in counts.items() for word in option))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{AT_ONCE} from {first_seed}, 0 failed" in done.stdout


@pytest.mark.parametrize("num_clients", [2, 3, 4, 7])
def test_small_jobs(num_clients: int) -> None:
    assert run(range(300), num_clients).seeds == 300


def test_seeds_of_200_peers() -> None:
    """Few of them: 1,000 are a campaign, which takes a quarter of an hour. In the first two client 0 is behind."""
    summary = Summary()
    for seeds in ((72, 235), range(1000, 1008)):
        summary.merge(run(seeds, 200))
    assert summary.seeds == 10


def test_every_fault_strikes_and_every_outcome_is_seen() -> None:
    summary = run(range(500), 8)
    assert summary.faults.keys() == set(KINDS)
    assert summary.outcomes.keys() >= {
        "ConfigurationError",
        "CoordinatorLostError",
        "DeviceFailedError",
        "DeviceInitializationError",
        "KeyboardInterrupt",
        "PeerFailedError",
        "RegistrationRefusedError",
        "RendezvousTimeoutError",
        "TopologyError",
        "killed or stopped",
        "left in order",
        "left without some",
    }
    assert Counter(summary.outcomes).total() > 500 * 7
