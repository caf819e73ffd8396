"""The kinds of all devices, merged: the same on every client, each distinct form once."""

from __future__ import annotations

import itertools

import pytest

from bringup.devices.base import LocalDevice
from bringup.runtime.machines.device_kinds import DeviceKinds, kinds_of, own_kinds
from bringup.transport.wire.messages import KindRun


def job(*kinds: str) -> list[bytes]:
    """Return the forms of clients, given the kinds of the devices of each, a letter each."""
    return [own_kinds([LocalDevice(kind) for kind in each]) for each in kinds]


def merged(*kinds: str) -> DeviceKinds:
    return kinds_of(job(*kinds))


def test_kinds_that_all_have_are_kept_once() -> None:
    assert merged("aab", "aab", "aab").runs == (KindRun("a", 2), KindRun("b", 1)) * 3
    assert merged("aab", "aab", "aab").data == job("aab")[0]


@pytest.mark.parametrize("kinds", [("a", "b"), ("aa", "a", "", "ba", "a", "aa"), ("b" * 300, "", "c", "b" * 300)])
def test_others_are_merged_in_the_order_of_the_clients(kinds: tuple[str, ...]) -> None:
    runs = merged(*kinds).runs
    assert "".join(run.kind * run.count for run in runs) == "".join(kinds)
    assert all(one.kind != other.kind for one, other in itertools.pairwise(runs))


def test_each_distinct_form_is_kept_once() -> None:
    assert len(merged(*["a", "b"] * 500).data) == sum(map(len, job("a", "b")))
