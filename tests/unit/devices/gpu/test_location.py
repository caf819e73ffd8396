"""Where GPUs are, from their NVLinks and NUMA nodes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bringup.devices.gpu.inventory import Gpu, MigDevice
from bringup.devices.gpu.location import locate_gpus


def gpu(
    index: int, *, links: Mapping[int, int] | None = None, switch_links: int = 0, numa_node: int | None = None
) -> Gpu:
    ends = tuple((address(other), count) for other, count in (links or {}).items())
    return Gpu(index, f"GPU-{index}", "H100", address(index), None, numa_node, ends, switch_links)


def address(index: int) -> str:
    return f"0000:{index:02x}:00.0"


def located(gpus: list[Gpu], client_id: int = 0) -> list[tuple[int, int]]:
    places = locate_gpus(gpus, client_id)
    assert {(place.z, place.core) for place in places} == {(client_id, 0)}
    assert len(set(places)) == len(gpus)
    return [(place.x, place.y) for place in places]


def test_one_gpu() -> None:
    assert located([gpu(5)], client_id=7) == [(0, 0)]


def test_gpus_on_switches_are_one_row_whatever_their_numa_nodes() -> None:
    gpus = [gpu(index, switch_links=18, numa_node=index // 4) for index in range(8)]
    assert located(gpus) == [(x, 0) for x in range(8)]


def test_pairs_with_a_bridge_are_rows() -> None:
    gpus = [gpu(index, links={index ^ 1: 4}) for index in range(8)]
    assert located(gpus) == [(x, y) for y in range(4) for x in range(2)]


def test_bridges_count_however_cuda_orders_the_gpus() -> None:
    gpus = [gpu(index, links={(index + 2) % 4: 4}) for index in range(4)]
    assert located(gpus) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_x_runs_along_the_links() -> None:
    ring = {0: (2, 3), 1: (2, 3), 2: (0, 1), 3: (0, 1)}
    gpus = [gpu(index, links=dict.fromkeys(ends, 1)) for index, ends in ring.items()]
    assert located(gpus) == [(0, 0), (2, 0), (1, 0), (3, 0)]


def test_x_runs_along_the_widest_links() -> None:
    gpus = [
        gpu(0, links={1: 1, 2: 2, 3: 1}),
        gpu(1, links={0: 1, 2: 1, 3: 2}),
        gpu(2, links={0: 2, 1: 1, 3: 1}),
        gpu(3, links={0: 1, 1: 2, 2: 1}),
    ]
    assert located(gpus) == [(0, 0), (2, 0), (1, 0), (3, 0)]


def test_a_star_has_no_path_and_keeps_its_order() -> None:
    gpus = [gpu(0, links={1: 1, 2: 1, 3: 1}), *(gpu(index, links={0: 1}) for index in (1, 2, 3))]
    assert located(gpus) == [(x, 0) for x in range(4)]


def test_many_linked_gpus_keep_their_order() -> None:
    gpus = [gpu(index, links={(index + 5) % 12: 1, (index - 5) % 12: 1}) for index in range(12)]
    assert located(gpus) == [(x, 0) for x in range(12)]


def test_without_links_numa_nodes_are_rows() -> None:
    gpus = [gpu(index, numa_node=index % 2) for index in range(4)]
    assert located(gpus) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_groups_of_unequal_sizes_are_one_row_in_which_they_stay_together() -> None:
    gpus = [gpu(0, numa_node=0), gpu(1, numa_node=1), gpu(2, numa_node=0)]
    assert located(gpus) == [(0, 0), (2, 0), (1, 0)]


def test_a_link_to_a_gpu_of_another_client_counts_for_nothing() -> None:
    assert located([gpu(0, links={1: 4}), gpu(2, links={3: 4})]) == [(0, 0), (1, 0)]


def test_unknown_numa_nodes_are_one_group() -> None:
    assert located([gpu(0), gpu(1)]) == [(0, 0), (1, 0)]


@pytest.mark.parametrize("client_id", [0, 3])
def test_mig_devices_of_one_gpu_have_places_of_their_own(client_id: int) -> None:
    whole = Gpu(0, "GPU-0", "H100", address(0), mig=(MigDevice("MIG-1", 1, 0, "x"), MigDevice("MIG-2", 2, 0, "x")))
    assert located([whole, whole], client_id) == [(0, 0), (1, 0)]


def test_clients_do_not_share_places() -> None:
    gpus = [gpu(index, switch_links=18) for index in range(4)]
    assert not set(locate_gpus(gpus, 0)) & set(locate_gpus(gpus, 1))
