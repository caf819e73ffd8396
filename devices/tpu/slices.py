"""TPU slices by name, with the coordinates and ids that libtpu gives their cores. Pure.

A name is that of `jax.experimental.topologies.get_topology_desc`: `v5e:4x4`. Its options follow as a JSON object:
`v4:2x2x1|{"chip_config_name": "megacore"}`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...errors import ConfigurationError

Extents3 = tuple[int, int, int]

_HOST: Extents3 = (2, 2, 1)
MULTISLICE_IDS = 100_000
"""Where there is more than one slice, the ids of each begin at a multiple of this: no slice has more devices."""
_NUM_SLICES_MAX = 1000
_OPTIONS = ("chip_config_name", "chips_per_host_bounds", "num_slices", "wrap")


@dataclass(frozen=True, slots=True)
class _Generation:
    """One kind of TPU.

    Attributes:
        kind: what libtpu calls a device.
        axes: how many axes its slices have.
        cores: devices on a chip, by the name of the chip's configuration.
    """

    kind: str
    axes: int
    cores: Mapping[str, int]


_GENERATIONS = {
    "v2": _Generation("TPU v2", 2, {"default": 2}),
    "v3": _Generation("TPU v3", 2, {"default": 2}),
    "v4": _Generation("TPU v4", 3, {"default": 2, "legacy": 2, "megacore": 1}),
    "v4 lite": _Generation("TPU v4 lite", 2, {"default": 1}),
    "v5e": _Generation("TPU v5 lite", 2, {"default": 1, "inference": 1}),
    "v5p": _Generation("TPU v5", 3, {"default": 1, "legacy": 2, "megacore": 1}),
    "v6e": _Generation("TPU v6 lite", 2, {"default": 1, "legacy": 1, "megachip": 1}),
    "tpu7x": _Generation("TPU7x", 3, {"default": 2, "legacy": 2, "megachip": 2}),
}
_ALIASES = {"v7x": "tpu7x"}


class SliceCore(NamedTuple):
    """One device of a slice, as libtpu describes it.

    Attributes:
        id: its id in the job.
        process_index: its host.
        coords: its chip's x, y and z within its slice.
        core_on_chip: its index on its chip.
        slice_index: its slice.
    """

    id: int
    process_index: int
    coords: Extents3
    core_on_chip: int
    slice_index: int


@dataclass(frozen=True, slots=True)
class TpuSlice:
    """A slice, or several alike in one job.

    Attributes:
        name: as it was given.
        kind: what libtpu calls a device.
        chips: chips along x, y and z of one slice.
        cores: devices on a chip.
        host: chips of a host along x, y and z.
        num_slices: how many slices there are.
        wrap: whether x, y and z wrap around; coordinates do not depend on it.
    """

    name: str
    kind: str
    chips: Extents3
    cores: int
    host: Extents3 = _HOST
    num_slices: int = 1
    wrap: tuple[bool, bool, bool] = (False, False, False)

    @classmethod
    def parse(cls, name: str, origin: str) -> TpuSlice:
        """Return the slice of a name, which was given in `origin`, a variable or an option.

        Raises:
            ConfigurationError: there is no such TPU, an option is malformed, or hosts do not divide the slice.
        """
        try:
            return cls._parse(name.strip())
        except ValueError as error:
            raise ConfigurationError(
                f"{origin}={name!r} names no slice of TPUs: {error}. Give one of {', '.join(_GENERATIONS)}, a colon, "
                "and the numbers of chips along its axes, such as v5e:4x4 or v4:2x2x4."
            ) from None

    @classmethod
    def _parse(cls, name: str) -> TpuSlice:
        text, _, options = name.partition("|")
        generation, _, layout = text.strip().rpartition(":")
        generation = _ALIASES.get(generation.lower(), generation.lower())
        if (known := _GENERATIONS.get(generation)) is None:
            raise ValueError(f"there is no TPU {generation!r}")
        chips, given = _layout(layout, known), _options(options)
        cores = _cores(given.get("chip_config_name", "default"), known)
        if math.prod(chips) * cores > MULTISLICE_IDS:
            raise ValueError(
                f"it has {math.prod(chips) * cores} devices, more than the {MULTISLICE_IDS} that slices have"
            )
        return cls(
            name=name,
            kind=known.kind,
            chips=chips,
            cores=cores,
            host=_host(given.get("chips_per_host_bounds", _HOST), chips),
            num_slices=_num_slices(given.get("num_slices", 1)),
            wrap=_wrap(given.get("wrap", (False, False, False))),
        )

    @property
    def num_hosts(self) -> int:
        """The number of hosts of all slices."""
        return self.num_slices * math.prod(self.chips) // math.prod(self.host)

    @property
    def num_devices(self) -> int:
        """The number of devices of all slices."""
        return self.num_slices * math.prod(self.chips) * self.cores

    def host_cores(self, process_index: int) -> list[SliceCore]:
        """Return the devices of one host, in libtpu's order: x fastest, then y, z, and the cores of a chip together."""
        hosts_of_slice = self.num_hosts // self.num_slices
        slice_index, host = divmod(process_index, hosts_of_slice)
        first = _position(host, [chips // own for chips, own in zip(self.chips, self.host, strict=True)])
        found = []
        for index in range(math.prod(self.host)):
            within = _position(index, self.host)
            x, y, z = (own * at + offset for own, at, offset in zip(self.host, first, within, strict=True))
            found += [self._core(process_index, (x, y, z), core, slice_index) for core in range(self.cores)]
        return found

    def _core(self, process_index: int, coords: Extents3, core: int, slice_index: int) -> SliceCore:
        x, y, z = coords
        id_ = ((z * self.chips[1] + y) * self.chips[0] + x) * self.cores + core
        if self.num_slices > 1:
            id_ += MULTISLICE_IDS * (slice_index + 1)
        return SliceCore(id_, process_index, coords, core, slice_index)


def is_slice_name(text: str) -> bool:
    """Return whether a text is meant as the name of a slice, valid or not; shapes such as `4x4x1x2` have no colon."""
    return ":" in text


def _position(index: int, extents: Sequence[int]) -> Extents3:
    plane = extents[0] * extents[1]
    return index % extents[0], index % plane // extents[0], index // plane


def _layout(layout: str, generation: _Generation) -> Extents3:
    if not re.fullmatch(r"[1-9][0-9]{0,5}(x[1-9][0-9]{0,5})*", layout, re.ASCII):
        raise ValueError(f"{layout!r} is not numbers of chips with `x` between them")
    sizes = [int(size) for size in layout.split("x")]
    if len(sizes) != generation.axes:
        raise ValueError(f"{layout!r} has {len(sizes)} axes, where slices of {generation.kind} have {generation.axes}")
    x, y, z = (*sizes, 1)[:3]
    return x, y, z


def _options(text: str) -> Mapping[str, Any]:
    try:
        options = json.loads(text) if text else {}
    except ValueError as error:
        raise ValueError(f"{text!r} is not JSON: {error}") from None
    if not isinstance(options, dict):
        raise ValueError(f"{text!r} is not a JSON object")
    if unknown := sorted(options.keys() - set(_OPTIONS)):
        raise ValueError(f"there is no option {unknown[0]!r}; there are {', '.join(_OPTIONS)}")
    return options


def _cores(configuration: object, generation: _Generation) -> int:
    if not isinstance(configuration, str) or configuration not in generation.cores:
        raise ValueError(f"chip_config_name {configuration!r} is none of {', '.join(generation.cores)}")
    return generation.cores[configuration]


def _host(bounds: Any, chips: Extents3) -> Extents3:
    if not isinstance(bounds, list | tuple) or len(bounds) != 3 or not all(map(_is_count, bounds)):
        raise ValueError(f"chips_per_host_bounds {bounds!r} is not three whole numbers from 1")
    if any(extent % bound for extent, bound in zip(chips, bounds, strict=True)):
        raise ValueError(
            f"hosts of {'x'.join(map(str, bounds))} chips do not divide {'x'.join(map(str, chips))}; give others after "
            'the name, as in |{"chips_per_host_bounds": [1, 1, 1]}'
        )
    x, y, z = bounds
    return x, y, z


def _num_slices(given: Any) -> int:
    if not _is_count(given) or given > _NUM_SLICES_MAX:
        raise ValueError(f"num_slices {given!r} is not a whole number from 1 to {_NUM_SLICES_MAX}")
    return int(given)


def _wrap(given: Any) -> tuple[bool, bool, bool]:
    if not isinstance(given, list | tuple) or len(given) != 3 or not all(isinstance(axis, bool) for axis in given):
        raise ValueError(f"wrap {given!r} is not three of true and false")
    x, y, z = given
    return x, y, z


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
