"""Devices that two clients of a job have brought up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from bringup.devices.base import LocalDevice
from bringup.runtime.machines.device_claims import Shared, find_shared, hash_of, own_claims, shared_error

Job = list[list[str]]


def shared(job: Job, allowing: Sequence[int] = ()) -> Shared | None:
    """Return what clients with devices of these fingerprints share, though not all of them allow it."""
    hashes = [hash_of(fingerprint) for client in job for fingerprint in client]
    allowed = [client_id in allowing for client_id, client in enumerate(job) for _ in client]
    return find_shared(
        np.array([len(client) for client in job], np.int32), np.reshape(hashes, (-1, 2)), np.array(allowed, bool)
    )


def error(job: Job, hosts: list[str]) -> str:
    """Return what all of them are told."""
    found = shared(job)
    assert found is not None
    shares = [
        own_claims(client_id, hosts[client_id], [LocalDevice("H100", fingerprint=one) for one in client], found)
        for client_id, client in enumerate(job)
    ]
    return str(shared_error(found, np.sum(shares, axis=0, dtype=np.uint8)))


@pytest.mark.parametrize(
    "job",
    [
        [[]],
        [["GPU-a"]],
        [["GPU-a"], ["GPU-b", "GPU-c"], []],
        [["", ""], ["", ""]],
        [["chip-0", "chip-0"], ["chip-1", "chip-1"]],
        [["GPU-a", ""], ["", "GPU-b"]],
    ],
    ids=["no devices", "one client", "all different", "unknown", "two cores of a chip", "some unknown"],
)
def test_nothing_is_shared(job: Job) -> None:
    assert shared(job) is None


@pytest.mark.parametrize(
    ("job", "found"),
    [
        ([["GPU-a"], ["GPU-a"]], ((0, 0), (1, 0), 1)),
        ([["GPU-a", "GPU-b"], [], ["GPU-c", "GPU-b"]], ((0, 1), (2, 1), 1)),
        ([["GPU-b", "GPU-a"], ["GPU-a", "GPU-b"]], ((0, 0), (1, 1), 2)),
        ([["a"], ["b"], ["b"], ["a"]], ((0, 0), (3, 0), 2)),
        ([["x"]] * 5, ((0, 0), (1, 0), 1)),
        ([["chip", "chip"], ["other"], ["chip"]], ((0, 1), (2, 0), 1)),
        ([["", "a"], ["", "a"]], ((0, 1), (1, 1), 1)),
    ],
)
def test_what_is_shared_is_found(job: Job, found: Shared) -> None:
    assert shared(job) == found


def test_what_all_allow_is_not_told() -> None:
    job = [["a", "b"], ["a"], ["a", "b"]]
    assert shared(job, allowing=(0, 1, 2)) is None
    assert shared(job, allowing=(0, 2)) == ((0, 0), (1, 0), 1)
    assert shared(job, allowing=(0, 1)) == ((0, 1), (2, 1), 2)
    assert shared(job, allowing=(1,)) == ((0, 0), (1, 0), 2)


def test_the_error_names_the_device_both_clients_and_both_hosts() -> None:
    text = error([["GPU-a", "GPU-b"], ["GPU-c"], ["GPU-b"]], ["one", "two", "three"])
    assert text.startswith(
        "client 0 on host one and client 2 on host three have brought up the same device: H100 GPU-b, device 1 of "
        "client 0 and device 0 of client 2. Give each client of a host devices of its own: by local_device_ids"
    )
    assert "(4 devices are so shared)" in error([["a", "b", "c", "d"]] * 2, ["one", "one"])


def test_odd_texts_do_no_harm() -> None:
    text = error([["\ud800" + "x" * 1000], ["\ud800" + "x" * 1000]], ["größer", ""])
    assert "on host größer and" in text
    assert len(text) < 1000


def test_no_fingerprint_hashes_to_none() -> None:
    hashes = {hash_of(str(number)) for number in range(10_000)}
    assert len(hashes) == 10_000
    assert (0, 0) not in hashes
    assert hash_of("") == (0, 0)
