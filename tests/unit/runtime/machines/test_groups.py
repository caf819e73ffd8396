"""Every job is divided into rings that together reach every client once."""

from __future__ import annotations

import math

import pytest

from bringup.runtime.machines.groups import GROUPS_FROM, Groups, group_size_of


@pytest.mark.parametrize("num_clients", [1, 2, 3, 4, 5, 7, 16, 61, 100, 1024])
@pytest.mark.parametrize("size", [0, 2, 3, 8, 32, 2000])
def test_the_groups_hold_every_client_once_and_none_is_alone(num_clients: int, size: int) -> None:
    groups = Groups(num_clients, size)
    places = [groups.place_of(client_id) for client_id in range(num_clients)]
    distinct = sorted({(place.index, place.count, place.first, place.last) for place in places})
    assert [place[:3] for place in distinct] == [(i, len(distinct), first) for i, first in enumerate(groups.leaders)]
    held = [client_id for *_, first, last in distinct for client_id in range(first, last + 1)]
    assert held == list(range(num_clients))
    assert num_clients == 1 or all(last > first for *_, first, last in distinct)
    if size > 1:
        assert all(last - first + 1 < 2 * size for *_, first, last in distinct)


@pytest.mark.parametrize(("num_clients", "size"), [(1, 0), (2, 0), (6, 0), (4, 2), (7, 3), (100, 10)])
def test_neighbours_form_a_ring_of_each_group_and_one_of_the_leaders(num_clients: int, size: int) -> None:
    groups = Groups(num_clients, size)
    for client_id in range(num_clients):
        left, right, *of_leader = groups.neighbours_of(client_id)
        assert groups.neighbours_of(left)[1] == client_id == groups.neighbours_of(right)[0]
        assert groups.place_of(left) == groups.place_of(right) == groups.place_of(client_id)
        leads = client_id in groups.leaders and len(groups.leaders) > 1
        assert len(of_leader) == 2 * leads
        if leads:
            assert groups.neighbours_of(of_leader[0])[3] == client_id == groups.neighbours_of(of_leader[1])[2]
    assert len(_walk(groups, 0, 1)) == groups.place_of(0).last + 1
    if len(groups.leaders) > 1:
        assert tuple(_walk(groups, 0, 3)) == groups.leaders


def _walk(groups: Groups, start: int, way: int) -> list[int]:
    walked = [start]
    while (following := groups.neighbours_of(walked[-1])[way]) != start:
        walked.append(following)
    return walked


def test_a_boundary_lies_between_two_hosts_where_one_is_near() -> None:
    hosts = [f"host-{client_id // 9}" for client_id in range(64)]
    assert Groups(64, 8, hosts).leaders == (0, 9, 18, 24, 32, 40, 48, 54)
    assert Groups(64, 8).leaders == tuple(range(0, 64, 8))
    assert Groups(64, 8, ["host"] * 64).leaders == tuple(range(0, 64, 8))


def test_large_jobs_are_divided_by_their_square_root_and_small_ones_not() -> None:
    assert group_size_of(GROUPS_FROM - 1) == 0
    assert group_size_of(GROUPS_FROM) == math.isqrt(GROUPS_FROM)
    assert group_size_of(10_000) == 100
