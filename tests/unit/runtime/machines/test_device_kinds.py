"""The kinds of all devices, merged: the same on every client, each distinct form once."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from bringup.devices.base import LocalDevice
from bringup.errors import TopologyError
from bringup.runtime.machines import device_kinds
from bringup.runtime.machines.device_kinds import DeviceKinds, KindShares, columns_of, own_kinds
from bringup.transport.wire.messages import KindRun


def job(*kinds: str) -> list[bytes]:
    """Return the forms of clients, given the kinds of the devices of each, a letter each."""
    return [own_kinds([LocalDevice(kind) for kind in each]) for each in kinds]


def shares_of(forms: list[bytes]) -> KindShares:
    return KindShares(np.stack([columns_of(form) for form in forms]))


def merged(forms: list[bytes]) -> DeviceKinds:
    shares = shares_of(forms)
    if shares.are_equal:
        return shares.kinds(np.frombuffer(forms[-1], np.uint8))
    own = [shares.own_share(client_id, form) for client_id, form in enumerate(forms)]
    return shares.kinds(np.sum(own, axis=0, dtype=np.uint8))


def test_where_all_have_the_same_kinds_there_is_nothing_to_merge() -> None:
    forms = job("aab", "aab", "aab")
    assert shares_of(forms).are_equal
    assert merged(forms).runs == (KindRun("a", 2), KindRun("b", 1)) * 3


@pytest.mark.parametrize("kinds", [("a", "b"), ("aa", "a", "", "ba", "a", "aa"), ("b" * 300, "", "c", "b" * 300)])
def test_others_are_merged_in_the_order_of_the_clients(kinds: tuple[str, ...]) -> None:
    runs = merged(job(*kinds)).runs
    assert "".join(run.kind * run.count for run in runs) == "".join(kinds)
    assert all(one.kind != other.kind for one, other in itertools.pairwise(runs))


def test_each_distinct_form_is_written_once() -> None:
    forms = job(*["a", "b"] * 500)
    assert len(merged(forms).data) == len({*forms}) * len(forms[0])


def test_what_goes_to_all_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_kinds, "_BYTES_MAX", 40)
    with pytest.raises(TopologyError, match=r"take \d+ bytes, more than 40: client 1 has the most"):
        shares_of(job("a", "abcdefghijklm", "b"))
