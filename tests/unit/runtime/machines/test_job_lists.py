"""Clients that were given different lists of addresses are told so, with the first entry that differs."""

from __future__ import annotations

import pytest

from bringup.runtime.machines.job_lists import digest_of, named, refusal_of_list

OURS = ("a:1", "b:1", "c:1")


@pytest.mark.parametrize("theirs", [OURS, None])
def test_the_same_list_or_none_fits(theirs: tuple[str, ...] | None) -> None:
    assert refusal_of_list(digest_of(theirs), digest_of(OURS), OURS) is None
    assert refusal_of_list(digest_of(OURS), digest_of(None), None) is None


@pytest.mark.parametrize(
    ("theirs", "yours", "ours"),
    [
        (("a:1", "c:1", "b:1"), "'c:1' for client 1", "'b:1'"),
        (("a:1", "b:1", "c:2"), "'c:2' for client 2", "'c:1'"),
    ],
)
def test_the_first_entry_that_differs_is_named(theirs: tuple[str, ...], yours: str, ours: str) -> None:
    refusal = refusal_of_list(digest_of(theirs), digest_of(OURS), OURS)
    assert refusal is not None
    told = named(refusal, theirs)
    assert (told.field, told.yours, told.ours) == ("jobs", yours, ours)
    assert "same order" in told.detail


def test_a_long_list_is_compared_as_far_as_it_is_told() -> None:
    ours = tuple(f"host-{number}.example.com:9000" for number in range(10_000))
    for odd in (7, 9_000):
        theirs = (*ours[:odd], "elsewhere:1", *ours[odd + 1 :])
        refusal = refusal_of_list(digest_of(theirs), digest_of(ours), ours)
        assert refusal is not None
        assert len(refusal.ours) < 10_000
        told = named(refusal, theirs)
        expected = "'elsewhere:1' for client 7" if odd == 7 else "another list"
        assert told.yours == expected
