"""Ways to split the axes of a machine between the dimensions of a mesh. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from .axes import WRAPPABLE, Extents

Split = tuple[Extents, ...]
"""For each dimension of the mesh, the factor that it has of each axis: the extents of its grid."""


def splits(extents: Extents, shape: tuple[int, ...]) -> Iterator[Split]:
    """Yield every way to give each dimension a factor of each extent, so that they multiply to its size."""
    size, *others = shape
    for grid in _grids(extents, size):
        if not others:
            yield (grid,)
            continue
        x, y, z, core = (extent // factor for extent, factor in zip(extents, grid, strict=True))
        for rest in splits((x, y, z, core), tuple(others)):
            yield (grid, *rest)


def _grids(extents: Extents, size: int) -> Iterator[Extents]:
    """Yield every grid of `size` places whose extents divide those given."""
    for core in _common_divisors(extents[3], size):
        for z in _common_divisors(extents[2], size // core):
            for y in _common_divisors(extents[1], size // core // z):
                x = size // core // z // y
                if extents[0] % x == 0:
                    yield x, y, z, core


def _common_divisors(one: int, other: int) -> list[int]:
    common = math.gcd(one, other)
    small = [divisor for divisor in range(1, math.isqrt(common) + 1) if common % divisor == 0]
    return sorted({*small, *(common // divisor for divisor in small)})


def least_hops(grid: Extents, extents: Extents, wrap: Collection[str]) -> int:
    """Return a lower bound of the length of a closed tour of the grid's chips, for any place in the machine."""
    chips = math.prod(grid[:3])
    long = [axis for axis in range(3) if grid[axis] > 1]
    if len(long) == 1 and not (WRAPPABLE[long[0]] in wrap and grid[long[0]] == extents[long[0]]):
        return 2 * (chips - 1)
    if not long:
        return 0
    # Every step changes the parity of the coordinates' sum, where no axis wraps around.
    return chips + (chips % 2 if not wrap else 0)
