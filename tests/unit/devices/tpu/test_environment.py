"""The environment variables of a slice."""

from __future__ import annotations

import pytest

from bringup.devices.tpu.environment import TpuEnvironment, told

V5E = {
    "TPU_ACCELERATOR_TYPE": "v5litepod-16",
    "TPU_WORKER_ID": "1",
    "TPU_CHIPS_PER_HOST_BOUNDS": "2,2,1",
    "TPU_HOST_BOUNDS": "2,2,1",
}


def test_nothing_said_is_nothing_known() -> None:
    found = TpuEnvironment.of({})
    assert found == TpuEnvironment()
    assert found.slice is None
    assert found.chips_expected is None
    assert str(found) == ""
    assert told({"HOME": "/root"}) == "none"


def test_a_slice_is_recognised() -> None:
    found = TpuEnvironment.of(V5E)
    assert found.slice is not None
    assert (found.slice.kind, found.slice.chips, found.slice.num_hosts) == ("TPU v5 lite", (4, 4, 1), 4)
    assert str(found) == "host 1 of 4 of v5e:4x4"
    assert found.chips_expected == 4


@pytest.mark.parametrize(
    ("type_", "chips", "hosts", "text"),
    [
        ("v2-8", "2,2,1", "1,1,1", "v2:2x2"),
        ("v3-32", "2,2,1", "2,2,1", "v3:4x4"),
        ("v4-8", "2,2,1", "1,1,1", "v4:2x2x1"),
        ("v4-64", "2,2,1", "1,2,4", "v4:2x4x4"),
        ("v5litepod-8", "2,4,1", "1,1,1", "v5e:2x4"),
        ("v5litepod-1", "1,1,1", "1,1,1", "v5e:1x1"),
        ("v5p-16", "2,2,1", "1,1,2", "v5p:2x2x2"),
        ("v6e-16", "2,2", "2,2", "v6e:4x4"),
        ("tpu7x-8", "2,2,1", "1,1,1", "tpu7x:2x2x1"),
    ],
)
def test_slices_of_every_kind(type_: str, chips: str, hosts: str, text: str) -> None:
    environment = {"TPU_ACCELERATOR_TYPE": type_, "TPU_CHIPS_PER_HOST_BOUNDS": chips, "TPU_HOST_BOUNDS": hosts}
    assert str(TpuEnvironment.of(environment)) == text


def test_the_bounds_of_a_process_win_over_those_of_its_host() -> None:
    environment = V5E | {"TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1", "TPU_PROCESS_BOUNDS": "4,4,1"}
    assert TpuEnvironment.of(environment).chips_expected == 1


def test_visible_chips_limit_what_is_expected() -> None:
    assert TpuEnvironment.of(V5E | {"TPU_VISIBLE_CHIPS": "0,2"}).chips_expected == 2
    assert TpuEnvironment.of(V5E | {"TPU_VISIBLE_DEVICES": "3"}).chips_expected == 1


def test_several_slices() -> None:
    found = TpuEnvironment.of(V5E | {"MEGASCALE_NUM_SLICES": "2", "MEGASCALE_SLICE_ID": "1"})
    assert (found.num_slices, found.slice_id) == (2, 1)
    assert str(found) == "host 1 of 4 of v5e:4x4, slice 1 of 2"


@pytest.mark.parametrize(
    "variables",
    [
        # What libtpu puts there by itself where it knows no better.
        {"TPU_ACCELERATOR_TYPE": "WARNING: could not determine TPU accelerator type, please set env var"},
        {"TPU_ACCELERATOR_TYPE": "v9-8"},
        {"TPU_CHIPS_PER_HOST_BOUNDS": "2,0,1"},
        {"TPU_CHIPS_PER_HOST_BOUNDS": "2;2;1"},
        {"TPU_HOST_BOUNDS": "٢,٢,٢"},
        {"TPU_HOST_BOUNDS": "999999999,1,1"},
        {"TPU_HOST_BOUNDS": ""},
    ],
)
def test_what_is_malformed_counts_as_not_set(variables: dict[str, str]) -> None:
    found = TpuEnvironment.of(V5E | variables)
    assert found.slice is None
    assert str(found) == ""


def test_numbers_that_are_none_count_as_not_set() -> None:
    odd = {"TPU_WORKER_ID": "one", "MEGASCALE_NUM_SLICES": "-2", "MEGASCALE_SLICE_ID": "x", "TPU_VISIBLE_CHIPS": "all"}
    found = TpuEnvironment.of(V5E | odd)
    assert (found.worker_id, found.num_slices, found.slice_id, found.visible_chips) == (None, 1, 0, None)
    assert str(found) == "v5e:4x4"


def test_variables_are_told_as_they_are_and_not_at_length() -> None:
    text = told(V5E | {"TPU_WORKER_HOSTNAMES": "h" * 500, "OTHER": "x"})
    assert "TPU_ACCELERATOR_TYPE=v5litepod-16, " in text
    assert "TPU_WORKER_HOSTNAMES=" + "h" * 120 + "," in text
    assert "OTHER" not in text
