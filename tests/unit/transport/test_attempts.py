"""When to try again, and when to look a name up again."""

from __future__ import annotations

import pytest

from bringup.transport.attempts import LOOKUP_TIMEOUT, Attempts, Goal, NameRecord, TroubleKind, retry_delay


def lookups(record: NameRecord, seconds: float, *, answer: tuple[str, ...] | None, attempts: float = 4.0) -> int:
    """Return how often a name is looked up in so many seconds, with so many attempts a second."""
    count = 0
    for number in range(round(seconds * attempts)):
        if record.begin(number / attempts):
            count += 1
            if answer is None:
                record.failed("no such name")
            else:
                record.found(answer)
    return count


@pytest.mark.parametrize("answer", [None, ("10.0.0.1",)])
def test_a_client_that_waits_looks_a_name_up_less_and_less_often(answer: tuple[str, ...] | None) -> None:
    assert lookups(NameRecord(), 10.0, answer=answer) <= 30
    assert lookups(NameRecord(), 1000.0, answer=answer) <= 160


def test_a_name_that_worked_is_not_looked_up_again() -> None:
    record = NameRecord()
    assert record.begin(0.0)
    record.found(("10.0.0.1", "10.0.0.2"))
    for now in (1.0, 1000.0, 1e6):
        record.worked("10.0.0.1")
        assert not record.begin(now)


def test_a_name_that_led_to_nobody_is_looked_up_again() -> None:
    record = NameRecord()
    assert record.begin(0.0)
    record.found(("10.0.0.1",))
    record.worked("10.0.0.1")
    assert not record.begin(1000.0)
    assert record.begin(1000.3)
    record.found(("10.0.0.9",))
    assert record.hosts == ("10.0.0.9",)


def test_what_a_name_led_to_is_kept_where_it_does_not_resolve_any_more() -> None:
    record = NameRecord()
    record.begin(0.0)
    record.found(("10.0.0.1",))
    for number in range(1, 100):
        if record.begin(10.0 * number):
            record.failed("temporary failure in name resolution")
    assert record.hosts == ("10.0.0.1",)
    assert record.error == "temporary failure in name resolution"


def test_the_host_that_answered_is_tried_first() -> None:
    record = NameRecord()
    record.begin(0.0)
    record.found(("10.0.0.1", "10.0.0.2", "10.0.0.3"))
    record.worked("10.0.0.3")
    assert record.hosts == ("10.0.0.3", "10.0.0.1", "10.0.0.2")
    record.found(("10.0.0.2", "10.0.0.3"))
    assert record.hosts == ("10.0.0.3", "10.0.0.2")


def test_one_look_up_is_on_its_way_unless_it_takes_too_long() -> None:
    record = NameRecord()
    assert record.begin(0.0)
    assert not record.begin(0.9 * LOOKUP_TIMEOUT)
    assert not record.is_asking(1.1 * LOOKUP_TIMEOUT)
    assert record.begin(1.1 * LOOKUP_TIMEOUT)


FINAL = {Goal.SESSION: TroubleKind.REFUSED, Goal.LINK: TroubleKind.DENIED, Goal.PROBE: TroubleKind.REFUSED}


@pytest.mark.parametrize("kind", TroubleKind)
@pytest.mark.parametrize("goal", Goal)
def test_only_proof_ends_the_attempts(goal: Goal, kind: TroubleKind) -> None:
    delay = Attempts(goal, 100.0).delay(kind, 101.0)
    assert delay == (None if FINAL.get(goal) is kind else retry_delay(1.0))
