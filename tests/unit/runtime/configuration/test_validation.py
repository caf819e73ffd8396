"""Arguments of a system's methods: numbers of any library pass, and errors name everything else."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from bringup.errors import ConfigurationError
from bringup.runtime.configuration.validation import client_set, seconds, step_of, timeout_of, whole_number


@pytest.mark.parametrize("value", [7, np.int8(7), np.uint64(7), np.array(7)])
def test_whole_numbers_of_any_library(value: object) -> None:
    assert whole_number(value) == 7
    assert type(whole_number(value)) is int
    assert step_of("report_progress", value) == 7
    assert client_set("live()", [value, 3]) == [3, 7]


@pytest.mark.parametrize("value", [True, np.True_, 7.0, np.float64(7), "7", b"7", None, 2**63, -(2**63), [7]])
def test_no_whole_number_of_64_bits(value: object) -> None:
    assert whole_number(value) is None


@pytest.mark.parametrize("value", [-1, True, 1.0, "1", 2**63 - 1])
def test_a_step_that_is_none_is_named(value: object) -> None:
    with pytest.raises(ConfigurationError) as raised:
        step_of("report_progress", value)
    assert f"report_progress(step={value!r}): a step is a whole number from 0 to" in str(raised.value)


@pytest.mark.parametrize(
    ("value", "number"),
    [(1, 1.0), (0.5, 0.5), (np.float32(0.5), 0.5), (np.int64(2), 2.0), (Fraction(1, 4), 0.25), (10**400, math.inf)],
)
def test_seconds_of_any_library(value: object, number: float) -> None:
    assert seconds(value) == number
    assert type(seconds(value)) is float


@pytest.mark.parametrize("value", ["1", True, None, math.nan, np.float64("nan"), 1j])
def test_no_number_of_seconds(value: object) -> None:
    assert seconds(value) is None


def test_seconds_may_lie_in_the_past() -> None:
    assert seconds(-(10**400)) == -math.inf


@pytest.mark.parametrize("value", [None, math.inf, 1e300, 10**400])
def test_what_nobody_lives_to_see_is_no_time_out(value: object) -> None:
    assert timeout_of("barrier 'a'", value) is None


@pytest.mark.parametrize("value", ["1", -1, -1e-9, math.nan, True])
def test_a_time_out_that_is_none_is_named(value: object) -> None:
    with pytest.raises(ConfigurationError) as raised:
        timeout_of("barrier 'a'", value)
    assert f"timeout={value!r} of barrier 'a' is not a number of seconds, 0 or more" in str(raised.value)


@pytest.mark.parametrize("ids", [(2, 0, 1), {0, 1, 2}, range(3), np.arange(3), (each for each in (0, 1, 2))])
def test_a_set_of_clients_is_any_sequence(ids: object) -> None:
    assert client_set("live()", ids) == [0, 1, 2]


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        (7, "client_ids=7 of live() is not a sequence of client ids"),
        (None, "client_ids=None of live() is not a sequence"),
        ("12", "client_ids=['1', '2'] of live() is not a sequence"),
        ([0, True], "client_ids=[0, True] of live() is not a sequence"),
        ([0, 1.0], "client_ids=[0, 1.0] of live() is not a sequence"),
        ([0, -1], "client_ids=[0, -1] of live() is not a sequence"),
        ([2**32], "of live() is not a sequence"),
        ([], "client_ids=[] of live(): give at least one client"),
        ([1, 1], "client_ids=[1, 1] of live(): give at least one client, and each once"),
    ],
)
def test_what_is_no_set_of_clients_is_named(ids: object, says: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        client_set("live()", ids)
    assert says in str(raised.value)
