"""Sets of client ids, packed and for a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.runtime.machines.id_ranges import IdRuns, format_ids, name_ids, pack_ids, pack_some, unpack_ids


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


_IDS = st.integers(0, 40)


@given(st.sets(_IDS), st.lists(st.tuples(st.booleans(), _IDS)), st.sets(_IDS))
def test_runs_are_a_set_of_ids(begun: set[int], changes: list[tuple[bool, int]], others: set[int]) -> None:
    runs, ids = IdRuns(pack_ids(begun)), set(begun)
    for is_added, client_id in changes:
        (runs.add if is_added else runs.discard)(client_id)
        (ids.add if is_added else ids.discard)(client_id)
        assert runs.packed() == pack_ids(ids)
        assert len(runs) == len(ids)
    assert [client_id for client_id in range(42) if client_id in runs] == sorted(ids)
    assert runs.within(pack_ids(others)).packed() == pack_ids(ids & others)
    assert len(runs.within(pack_ids(others))) == len(ids & others)


def test_a_text_and_a_message_of_very_many_have_the_first_and_the_number_of_the_rest() -> None:
    assert format_ids([1, 4, 5], more=37) == "1, 4-5 and 37 more"
    assert format_ids(range(0, 100, 2), more=7).endswith("28, 30 and 41 more")
    assert (name_ids([3], more=1), name_ids([3])) == ("clients 3 and 1 more", "client 3")
    assert pack_some(range(0, 100, 2), 3) == (0, 0, 2, 2, 4, 4)
    assert pack_some([7, 8], 3) == (7, 8)
