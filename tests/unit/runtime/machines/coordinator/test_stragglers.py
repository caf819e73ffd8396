"""Steps of programs: the list for heartbeats, and the texts."""

from __future__ import annotations

from bringup.runtime.machines.coordinator.stragglers import Stragglers
from bringup.transport.wire.messages import Heartbeat


def with_steps(*steps: int, now: float = 0.0) -> Stragglers:
    stragglers = Stragglers(None)
    for client_id, step in enumerate(steps):
        stragglers.note(client_id, Heartbeat(1, "ready", True, "", step, 0.0, 0.0), now)
    return stragglers


def test_a_few_are_listed_the_last_first_and_one_list_serves_for_a_while() -> None:
    stragglers = with_steps(*range(100, 50, -1))
    behind = stragglers.furthest_behind(0.0)
    assert [step.client_id for step in behind] == list(range(49, 33, -1))
    stragglers.note(0, Heartbeat(2, "ready", True, "", 1, 0.0, 0.0), 0.1)
    assert stragglers.furthest_behind(0.2) is behind
    assert stragglers.furthest_behind(0.3)[0].client_id == 0


def test_a_client_is_described_beside_the_others() -> None:
    stragglers = with_steps(7, 7, 7, 9)
    assert stragglers.describe(0) == "it is at step 7, as are clients 1-2, 2 behind client 3"
    assert stragglers.describe(3) == "it is at step 9"
    assert stragglers.describe(4) == ""
    assert with_steps(-1).describe(0) == "", "it reports no steps"
