"""Sets of client ids, packed and for a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.runtime.machines.id_ranges import format_ids, pack_ids, unpack_ids


@pytest.mark.parametrize(
    ("ids", "packed", "text"),
    [
        ([], (), ""),
        ([0], (0, 0), "0"),
        ([5, 3, 4, 1], (1, 1, 3, 5), "1, 3-5"),
        ([7, 6], (6, 7), "6-7"),
        (range(1000), (0, 999), "0-999"),
    ],
)
def test_runs_are_told_as_such(ids: list[int], packed: tuple[int, ...], text: str) -> None:
    assert pack_ids(ids) == packed
    assert format_ids(ids) == text


def test_a_text_stays_short() -> None:
    text = format_ids(range(0, 1000, 2))
    assert text.startswith("0, 2, 4, ")
    assert text.endswith(" and 484 more")


@given(st.sets(st.integers(0, 10_000)))
def test_what_is_packed_unpacks_sorted(ids: set[int]) -> None:
    assert list(unpack_ids(pack_ids(ids))) == sorted(ids)


def test_half_a_pair_is_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        list(unpack_ids((1, 2, 3)))
