"""When devices count as healthy."""

from __future__ import annotations

from bringup.devices.base import Health
from bringup.devices.health_filter import HealthFilter

GOOD, BAD, GONE = Health(ok=True), Health(ok=False, detail="too hot"), Health(ok=False, detail="gone", permanent=True)


def changes(results: list[Health], **settings: int) -> list[tuple[int, Health]]:
    """Return the changes, and after which check each came."""
    watched = HealthFilter(**settings)
    found = [(number, watched.observe(result)) for number, result in enumerate(results, 1)]
    return [(number, change) for number, change in found if change is not None]


def test_what_is_healthy_stays_so_without_a_word() -> None:
    assert changes([GOOD] * 10 + [Health(ok=True, detail="a word")]) == []


def test_three_bad_checks_in_a_row_make_it_unhealthy_once() -> None:
    assert changes([BAD] * 10) == [(3, Health(ok=False, detail="too hot (in 3 checks in a row)"))]


def test_five_good_checks_in_a_row_make_it_healthy_again() -> None:
    text = "healthy again for 5 checks, after: too hot (in 3 checks in a row)"
    assert changes([BAD] * 3 + [GOOD] * 9)[1:] == [(8, Health(ok=True, detail=text))]


def test_flapping_changes_nothing() -> None:
    assert changes([GOOD, BAD] * 50) == []
    assert changes([BAD, BAD, GOOD] * 50) == []
    assert changes([BAD] * 3 + [GOOD, GOOD, GOOD, GOOD, BAD] * 50)[1:] == []


def test_one_that_flapped_before_it_failed_says_so() -> None:
    ((number, change),) = changes([BAD, GOOD, BAD, BAD, GOOD, BAD, BAD, BAD])
    assert number == 8
    assert change.detail == "too hot (in 3 checks in a row, and came and went 2 times before)"
    ((_, change),) = changes([BAD, GOOD, BAD, BAD, BAD])
    assert change.detail == "too hot (in 3 checks in a row, and came and went once before)"


def test_what_cannot_pass_needs_no_second_look() -> None:
    assert changes([GOOD, GONE, GONE]) == [(2, GONE)]
    assert changes([BAD, GONE])[0] == (2, GONE)


def test_a_silent_failure_has_words_all_the_same() -> None:
    assert changes([Health(ok=False)], unhealthy_after=1) == [
        (1, Health(ok=False, detail="the health check failed, and did not say why (in 1 check in a row)"))
    ]


def test_the_counts_are_the_users() -> None:
    found = changes([BAD, GOOD, GOOD, BAD], unhealthy_after=1, healthy_after=2)
    assert [(number, change.ok) for number, change in found] == [(1, False), (3, True), (4, False)]


def test_checks_come_sooner_while_a_change_is_open() -> None:
    watched = HealthFilter()
    assert watched.pause(30.0) == 30.0
    watched.observe(BAD)
    assert watched.pause(30.0) == 1.0
    assert watched.pause(0.25) == 0.25
    watched.observe(BAD)
    change = watched.observe(BAD)
    assert change is not None
    assert not change.ok
    assert watched.pause(30.0) == 30.0
    watched.observe(GOOD)
    assert watched.pause(30.0) == 1.0
    watched.observe(BAD)
    assert watched.pause(30.0) == 30.0
