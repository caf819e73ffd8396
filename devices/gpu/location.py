"""Coordinates of GPUs, from their NVLinks and NUMA nodes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..base import CoreLocation
from .inventory import Gpu

# More GPUs than are ever wired up by hand: larger machines have switches, where any order is as good.
_WIRED_MAX = 8


def locate_gpus(gpus: Sequence[Gpu], client_id: int) -> tuple[CoreLocation, ...]:
    """Return a distinct location for each device of a client.

    z is the client. x and y say who is near to whom: y counts the groups of GPUs that NVLinks join, or, without
    NVLinks, that share a NUMA node; x counts along the NVLinks of a group. GPUs that all hang on NVLink switches are
    one group, and so are groups of unequal sizes, as coordinates without holes are worth more: then y is 0.

    Args:
        gpus: the GPU of each device; the same one for several MIG devices.
        client_id: the client.
    """
    groups = _groups(gpus)
    if len({len(group) for group in groups}) > 1:
        groups = [[device for group in groups for device in group]]
    places = [CoreLocation(0, 0, client_id, 0)] * len(gpus)
    for y, group in enumerate(groups):
        for x, device in enumerate(group):
            places[device] = CoreLocation(x, y, client_id, 0)
    return tuple(places)


def _groups(gpus: Sequence[Gpu]) -> list[list[int]]:
    """Return the devices of each group, by their position in `gpus`."""
    everything = list(range(len(gpus)))
    # MIG devices do not reach each other over NVLink, nor does a GPU in MIG mode reach others.
    if any(gpu.mig is not None for gpu in gpus) or all(gpu.switch_links for gpu in gpus):
        return [everything]
    if any(_links(one, other) for one in gpus for other in gpus):
        joined = _connected(everything, lambda one, other: bool(_links(gpus[one], gpus[other])))
        return [_path(group, gpus) for group in joined]
    return _connected(everything, lambda one, other: gpus[one].numa_node == gpus[other].numa_node)


def _links(one: Gpu, other: Gpu) -> int:
    return dict(one.links).get(other.pci, 0)


def _connected(items: Sequence[int], are_joined: Callable[[int, int], bool]) -> list[list[int]]:
    """Return the items in groups: whoever is joined to a member of a group is in it."""
    left, groups = list(items), []
    while left:
        group = [left.pop(0)]
        for member in group:
            near = [item for item in left if are_joined(member, item)]
            left = [item for item in left if item not in near]
            group += near
        groups.append(sorted(group))
    return groups


def _path(group: list[int], gpus: Sequence[Gpu]) -> list[int]:
    """Return a group in an order in which each is linked to the next, the first one as it was; as it is without one."""

    def extended(path: list[int]) -> list[int] | None:
        if len(path) == len(group):
            return path
        near = [item for item in group if item not in path and _links(gpus[path[-1]], gpus[item])]
        # Along most links first: these are the widest ways.
        for item in sorted(near, key=lambda item: -_links(gpus[path[-1]], gpus[item])):
            if (longer := extended([*path, item])) is not None:
                return longer
        return None

    return (extended(group[:1]) if len(group) <= _WIRED_MAX else None) or group
