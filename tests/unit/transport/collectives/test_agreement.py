"""The agreement of the clients on their calls, however they are brought together."""

from __future__ import annotations

import functools
import operator
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.transport.collectives.agreement import (
    AGREEMENT_BYTES_MAX,
    TEXT_BYTES_MAX,
    Agreement,
    MalformedFrameError,
    Run,
    decode_agreement,
    first_difference,
)

TREES = ["all_reduce(sum, {'a': int32[1], 'b': int32[2]})", "all_reduce(sum, {'a': int32[1], 'b': int32[3]})"]
CALLS = ["all_reduce(sum, int32[4])", "all_reduce(max, int32[4])", "broadcast()", *TREES]
PARTS = [(call, True) for call in CALLS] + [("nothing: its call ended before its turn (ValueError)", False)]


def each(calls: list[tuple[str, bool]]) -> list[Agreement]:
    return [Agreement.of(client_id, call, takes_part=takes) for client_id, (call, takes) in enumerate(calls)]


def agreement_of(*calls: str) -> Agreement:
    """Return the agreement of clients that joined one after the other, as around one ring."""
    return functools.reduce(operator.add, each([(call, True) for call in calls]))


def grouped(agreements: list[Agreement], rng: random.Random) -> Agreement:
    """Return the agreement of clients in groups of groups, of any sizes."""
    if len(agreements) == 1:
        return agreements[0]
    cut = rng.randrange(1, len(agreements))
    return grouped(agreements[:cut], rng) + grouped(agreements[cut:], rng)


def told(calls: list[tuple[str, bool]]) -> str:
    """Return the text for an error, from all calls at once."""
    first, takes_part = calls[0]
    runs = [0, *(after for after in range(1, len(calls)) if calls[after] != calls[after - 1])]
    if runs == [0] and takes_part:
        return first
    where = first_difference(first, calls[runs[1]][0]) if len(runs) > 1 else ""
    said = "; ".join(f"client {client_id} called {calls[client_id][0]}" for client_id in runs)
    return f"{where}: {said}" if where else said


@pytest.mark.parametrize(
    ("calls", "text"),
    [
        (["a", "b"], "client 0 called a; client 1 called b"),
        (["a", "a", "b"], "client 0 called a; client 2 called b"),
        (["a", "b", "b", "b"], "client 0 called a; client 1 called b"),
        (["a", "b", "c", "a"], "client 0 called a; client 1 called b; client 2 called c; client 3 called a"),
    ],
)
def test_who_called_what_is_told(calls: list[str], text: str) -> None:
    agreement = agreement_of(*calls)
    assert not agreement.agreed
    assert agreement.text == text


def test_equal_calls_agree() -> None:
    assert agreement_of("a", "a", "a") == Agreement((Run(0, "a"),))
    assert agreement_of("a", "a", "a").agreed
    assert agreement_of("a", "a", "a").text == "a"


def test_nobody_agrees_where_a_client_takes_no_part() -> None:
    alone = Agreement.of(0, "nothing", takes_part=False)
    for agreement in (alone, alone + Agreement.of(1, "nothing", takes_part=False)):
        assert not agreement.agreed
        assert agreement.text == "client 0 called nothing"
    assert not (alone + Agreement.of(1, "nothing")).agreed
    assert not (Agreement.of(0, "a") + Agreement.of(1, "nothing", takes_part=False)).agreed


@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=24), st.randoms(use_true_random=False))
def test_any_grouping_gives_the_text_of_one_ring(calls: list[tuple[str, bool]], rng: random.Random) -> None:
    agreement = grouped(each(calls), rng)
    assert agreement.text == told(calls)
    assert agreement.agreed == (len(set(calls)) == 1 and calls[0][1])


@given(st.lists(st.integers(0, 1400), min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_any_grouping_leaves_the_same_out(lengths: list[int], rng: random.Random) -> None:
    calls = [(f"{length % 7} {'x' * length}", True) for length in lengths]
    whole = functools.reduce(operator.add, each(calls))
    assert grouped(each(calls), rng) == whole
    assert len(whole.encode()) <= AGREEMENT_BYTES_MAX
    assert told(calls).startswith(whole.text)
    assert whole.is_cut == (whole.text != told(calls))


def test_the_text_stays_within_its_bound_however_many_differ() -> None:
    agreement = agreement_of(*(f"all_reduce(sum, int32[{n}])" for n in range(1000)))
    assert not agreement.agreed
    assert len(agreement.text.encode()) <= TEXT_BYTES_MAX
    assert len(agreement.encode()) <= TEXT_BYTES_MAX


@given(st.lists(st.tuples(st.text(max_size=30), st.booleans()), min_size=1, max_size=5))
def test_an_agreement_survives_and_drives_no_terminal(calls: list[tuple[str, bool]]) -> None:
    agreement = functools.reduce(operator.add, each(calls))
    assert decode_agreement(agreement.encode()) == agreement
    assert agreement.text.isprintable()


def test_what_another_client_says_is_shown_safely() -> None:
    assert decode_agreement(Agreement((Run(1, "\x1b[2J"),)).encode()).text == "\\x1b[2J"


@pytest.mark.parametrize("data", [b"", b"\xc1", Agreement(()).encode(), b"\x92\x90\xc2", bytes(40)])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedFrameError, match="expected what the clients called"):
        decode_agreement(data)
