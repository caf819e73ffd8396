"""The merged table of devices."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from bringup.devices.base import CoreLocation, LocalDevice
from bringup.devices.topology.coordinates import owner
from bringup.devices.topology.topology import Topology
from bringup.errors import TopologyError
from bringup.runtime.machines.core_table import CoreTable, counts_of, own_entry, own_rows, shares_of, table_of
from bringup.runtime.machines.device_kinds import own_kinds

Int32Array = npt.NDArray[np.int32]
Job = list[list[LocalDevice]]


def device(core_id: int | None, x: int | None = None) -> LocalDevice:
    return LocalDevice("SIM", core_id, None if x is None else CoreLocation(x, 0, 0, 1))


JOB: Job = [[device(5, 0), device(2, 1)], [device(9, 2)], [device(0, 3), device(7, 4), device(1, 5)]]


KINDS = own_kinds([device(0)])
SAME = shares_of(own_entry(0, 1, "SIM", 1, KINDS)).kinds(np.frombuffer(KINDS, np.uint8))


def entries(job: list[tuple[str, int]]) -> Int32Array:
    """Return the entries of clients with so many devices of a type, as the ring sums them up."""
    shares = [own_entry(client_id, len(job), *share, KINDS) for client_id, share in enumerate(job)]
    return np.sum(shares, axis=0, dtype=np.int32)


def merged(job: Job) -> tuple[Int32Array, Int32Array]:
    """Return counts and rows as the ring sums them up."""
    counts = counts_of(entries([("SIM", len(devices)) for devices in job]), allow_empty=True)
    shares = [own_rows(client_id, counts, devices) for client_id, devices in enumerate(job)]
    rows = np.zeros_like(shares[0])
    for share in shares:
        rows += share
    return counts, rows


def table(job: Job) -> CoreTable:
    return table_of(*merged(job), SAME)


def test_the_sum_over_all_clients_is_the_table() -> None:
    result = table(JOB)
    assert result.counts.tolist() == [2, 1, 3]
    assert result.core_ids.tolist() == [5, 2, 9, 0, 7, 1]
    assert result.locations is not None
    assert result.locations[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert [owner(result.counts, row) for row in range(6)] == [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1), (2, 2)]
    assert result.location(2) == CoreLocation(2, 0, 0, 1)


def test_the_table_cannot_be_changed() -> None:
    result = table(JOB)
    with pytest.raises(ValueError, match="read-only"):
        result.core_ids[0] = 1


def test_devices_without_ids_get_their_position_and_need_no_location() -> None:
    result = table([[device(None)], [device(None), device(None)]])
    assert result.core_ids.tolist() == [0, 1, 2]
    assert result.locations is None
    assert result.location(0) is None


@pytest.mark.parametrize(
    "other",
    [
        [[device(5, 0), device(3, 1)], *JOB[1:]],
        [[device(5, 0), device(2, 6)], *JOB[1:]],
        [JOB[0] + JOB[1], [], JOB[2]],
        [[device(device_.core_id) for device_ in devices] for devices in JOB],
    ],
    ids=["another id", "another location", "other counts", "no locations"],
)
def test_the_digest_tells_tables_apart(other: Job) -> None:
    assert table(other).digest != table(JOB).digest
    assert table(JOB).digest == table(JOB).digest


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ([[device(5)], [device(5)]], ["core id 5", "device 0 of client 0", "device 0 of client 1"]),
        ([[device(1), device(1)]], ["core id 1", "device 0 of client 0", "device 1 of client 0"]),
        ([[device(1, 3)], [device(2, 3)]], ["location (3, 0, 0, 1)", "client 0", "client 1"]),
        ([[device(1, 0)], [device(2)], [device(3)]], ["clients 1-2 have no location"]),
    ],
    ids=["one id on two clients", "one id twice on one", "one location twice", "some without location"],
)
def test_tables_that_make_no_sense_name_the_clients(job: Job, words: list[str]) -> None:
    with pytest.raises(TopologyError) as caught:
        table(job)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("times", [0, 2])
def test_a_slot_that_was_not_written_once_is_found(times: int) -> None:
    counts, rows = merged(JOB)
    rows[2] *= times
    with pytest.raises(TopologyError, match=rf"device 0 of client 1 was written {times} times"):
        table_of(counts, rows, SAME)


@pytest.mark.parametrize("core_id", [-1, 2**31])
def test_an_id_that_does_not_fit_is_refused(core_id: int) -> None:
    with pytest.raises(TopologyError, match=rf"client 1 has core id {core_id}"):
        own_rows(1, np.array([1, 1], np.int32), [device(core_id)])


def test_the_largest_id_fits() -> None:
    assert table([[device(2**31 - 1)], [device(0)]]).core_ids.tolist() == [2**31 - 1, 0]


def test_clients_without_devices_are_named() -> None:
    assert counts_of(entries([("SIM", 1), ("SIM", 2)])).tolist() == [1, 2]
    with pytest.raises(TopologyError, match="clients 1, 3-4 "):
        counts_of(entries([("SIM", number) for number in (1, 0, 2, 0, 0)]))


def test_some_clients_may_be_allowed_to_have_no_devices_but_not_all() -> None:
    counts_of(entries([("SIM", 0), ("SIM", 2), ("SIM", 0)]), allow_empty=True)
    with pytest.raises(TopologyError, match="no client brought a device"):
        counts_of(entries([("SIM", 0)] * 3), allow_empty=True)


@pytest.mark.parametrize("other", ["CPU", "ACCELERATOR-OF-A-LONG-NAME"])
def test_clients_with_different_types_of_devices_are_named(other: str) -> None:
    with pytest.raises(TopologyError, match=rf"clients 0, 2 have SIM; client 1 has {other[:16]}\. Give"):
        counts_of(entries([("SIM", 2), (other, 2), ("SIM", 2)]))


def test_clients_without_devices_have_no_rows() -> None:
    job: Job = [[], [device(2, 1), device(5, 0)], []]
    counts = np.array([0, 2, 0], np.int32)
    rows = sum(
        (own_rows(client_id, counts, devices) for client_id, devices in enumerate(job)), np.zeros((2, 10), np.int32)
    )
    table = table_of(counts, rows, SAME)
    assert table.core_ids.tolist() == [2, 5]
    assert [owner(table.counts, row) for row in range(2)] == [(1, 0), (1, 1)]


@pytest.mark.parametrize("far", [2**31 - 2, 2**30])
def test_a_machine_of_more_places_than_a_topology_counts_is_refused(far: int) -> None:
    """Before, the job came up, and the topology raised on every client."""
    job = [[LocalDevice("SIM", 0, CoreLocation(1, 0, 0, 0))], [LocalDevice("SIM", 1, CoreLocation(0, far, 0, 0))]]
    with pytest.raises(TopologyError, match=rf"device 0 of client 1 is at \(0, {far}, 0, 0\): .* places"):
        table(job)


def test_a_far_device_on_a_line_is_no_harm() -> None:
    result = table([[device(0, 0)], [LocalDevice("SIM", 1, CoreLocation(2**29, 0, 0, 1))]])
    assert result.locations is not None
    assert Topology.of_locations(result.counts, result.locations).extents == (2**29 + 1, 1, 1, 2)
