"""The merged table of devices."""

from __future__ import annotations

import pytest

from bringup.devices.base import CoreLocation, LocalDevice
from bringup.devices.topology.coordinates import owner
from bringup.devices.topology.topology import Topology
from bringup.errors import TopologyError
from bringup.runtime.machines import core_table
from bringup.runtime.machines.core_table import CoreTable, Reports, own_report
from bringup.transport.wire.control import encode
from bringup.transport.wire.messages import DeviceReport, Dismissed

Job = list[list[LocalDevice]]


def device(core_id: int | None, x: int | None = None) -> LocalDevice:
    return LocalDevice("SIM", core_id, None if x is None else CoreLocation(x, 0, 0, 1))


JOB: Job = [[device(5, 0), device(2, 1)], [device(9, 2)], [device(0, 3), device(7, 4), device(1, 5)]]


def reports(job: Job, types: tuple[str, ...] = ()) -> Reports:
    """Return the reports of clients with these devices, of type SIM where no other is given, as the ring has them."""
    names = types or ("SIM",) * len(job)
    return Reports([own_report(client_id, len(job), names[client_id], own) for client_id, own in enumerate(job)])


def table(job: Job) -> CoreTable:
    return reports(job).table()


def numbers(*counts: int) -> Job:
    """Return so many devices for each client, without ids."""
    return [[device(None)] * count for count in counts]


def test_the_devices_of_all_clients_are_the_table() -> None:
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


@pytest.mark.parametrize("sender", [0, 2])
def test_a_report_of_another_client_than_is_due_is_found(sender: int) -> None:
    parts = [own_report(client_id, 3, "SIM", own) for client_id, own in enumerate(JOB)]
    parts[1] = parts[sender]
    with pytest.raises(TopologyError, match=rf"the devices of client {sender} where those of client 1 are due"):
        Reports(parts)


@pytest.mark.parametrize(
    "odd", [b"", b"odd", encode(Dismissed(())), encode(DeviceReport(1, "SIM", b"", bytes(35)))], ids=repr
)
def test_something_else_than_a_report_is_found(odd: bytes) -> None:
    with pytest.raises(TopologyError, match="client 1 sent "):
        Reports([own_report(0, 2, "SIM", JOB[0]), odd])


def test_reports_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_table, "_REPORTS_BYTES_MAX", 1000)
    own_report(1, 4, "SIM", JOB[0])
    with pytest.raises(
        TopologyError, match=r"the 2 devices of client 1 take \d+ bytes in the merge, more than the 10 "
    ):
        own_report(1, 100, "SIM", JOB[0])


@pytest.mark.parametrize("core_id", [-1, 2**31])
def test_an_id_that_does_not_fit_is_refused(core_id: int) -> None:
    with pytest.raises(TopologyError, match=rf"client 1 has core id {core_id}"):
        own_report(1, 2, "SIM", [device(core_id)])


def test_the_largest_id_fits() -> None:
    assert table([[device(2**31 - 1)], [device(0)]]).core_ids.tolist() == [2**31 - 1, 0]


def test_clients_without_devices_are_named() -> None:
    reports(numbers(1, 2)).check(allow_empty=False)
    assert reports(numbers(1, 2)).counts.tolist() == [1, 2]
    with pytest.raises(TopologyError, match="clients 1, 3-4 "):
        reports(numbers(1, 0, 2, 0, 0)).check(allow_empty=False)


def test_some_clients_may_be_allowed_to_have_no_devices_but_not_all() -> None:
    reports(numbers(0, 2, 0)).check(allow_empty=True)
    with pytest.raises(TopologyError, match="no client brought a device"):
        reports(numbers(0, 0, 0)).check(allow_empty=True)


@pytest.mark.parametrize("other", ["CPU", "ACCELERATOR-OF-A-LONG-NAME"])
def test_clients_with_different_types_of_devices_are_named(other: str) -> None:
    with pytest.raises(TopologyError, match=rf"clients 0, 2 have SIM; client 1 has {other}\. Give"):
        reports(numbers(2, 2, 2), ("SIM", other, "SIM")).check(allow_empty=False)


def test_clients_without_devices_have_no_rows() -> None:
    result = table([[], [device(2, 1), device(5, 0)], []])
    assert result.core_ids.tolist() == [2, 5]
    assert [owner(result.counts, row) for row in range(2)] == [(1, 0), (1, 1)]


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
