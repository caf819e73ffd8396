"""A simulated slice: its shape, its split over the clients of a job, and its core ids. Pure.

A slice is given by its shape or by the name of a real one. Chips and hosts are numbered as on real slices, x fastest,
then y, then z, and the cores of a chip follow one another.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from ...errors import ConfigurationError
from ..base import CoreLocation
from ..tpu.cores import stacked_location
from ..tpu.slices import SliceCore, TpuSlice, is_slice_name

TOPOLOGY_VARIABLE = "BRINGUP_SIM_TOPOLOGY"

# Chips of a host along x and y: the hosts of v2 to v7x slices are blocks of 2x2x1 chips.
_BLOCK = 2

_MAX_INT32 = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SliceShape:
    """The number of chips of a slice along x, y and z, and the number of cores on a chip (1 or 2).

    `real` is the slice of TPUs that it stands for, if any. Where that is several slices, they are stacked along z: a
    location does not say which slice it is in.
    """

    x: int
    y: int
    z: int
    cores: int
    real: TpuSlice | None = None

    @classmethod
    def parse(cls, text: str, origin: str = TOPOLOGY_VARIABLE) -> SliceShape:
        """Parse `XxYxZxC`, `XxYxZ` (one core per chip) or `XxY` (also one chip deep), such as `4x4x1x2`, or `v5e:4x4`.

        `origin` is the variable or the option that it was given in, for errors.

        Raises:
            ConfigurationError: the text has another form, a size is 0, C is neither 1 nor 2, or no slice has that name.
        """
        if is_slice_name(text):
            return cls.of_slice(TpuSlice.parse(text, origin))
        if not re.fullmatch(r"[0-9]{1,10}(x[0-9]{1,10}){1,3}", text.strip(), re.ASCII | re.IGNORECASE):
            raise _bad_shape(origin, text, "it is not made of 2 to 4 whole numbers with `x` between them")
        x, y, z, cores = (*map(int, text.strip().lower().split("x")), 1, 1)[:4]
        if 0 in (x, y, z, cores):
            raise _bad_shape(origin, text, "a size is 0")
        if cores > 2:
            raise _bad_shape(origin, text, f"{cores} cores on a chip, where real chips have 1 or 2")
        shape = cls(x, y, z, cores)
        if shape.num_cores > _MAX_INT32:
            raise _bad_shape(origin, text, f"the ids of {shape.num_cores} cores do not fit into 32 bits")
        return shape

    @classmethod
    def of_slice(cls, real: TpuSlice) -> SliceShape:
        """Return the shape of a slice of TPUs."""
        x, y, z = real.chips
        return cls(x, y, z * real.num_slices, real.cores, real)

    @property
    def num_chips(self) -> int:
        """The number of chips."""
        return self.x * self.y * self.z

    @property
    def num_cores(self) -> int:
        """The number of cores on all chips."""
        return self.num_chips * self.cores

    @property
    def num_blocks(self) -> int:
        """The number of hosts: blocks of 2x2x1 chips where none are known, 0 where the shape is not made of them."""
        if self.real is not None:
            return self.real.num_hosts
        if self.x % _BLOCK or self.y % _BLOCK:
            return 0
        return self.num_chips // _BLOCK**2

    def __str__(self) -> str:
        return self.real.name if self.real is not None else f"{self.x}x{self.y}x{self.z}x{self.cores}"


def default_shape(num_clients: int) -> SliceShape:
    """Return the most nearly square slice that has one host block for each client, with two cores per chip."""
    rows = next(rows for rows in range(math.isqrt(num_clients), 0, -1) if num_clients % rows == 0)
    return SliceShape(_BLOCK * (num_clients // rows), _BLOCK * rows, 1, 2)


@dataclass(frozen=True, slots=True)
class SimSlice:
    """A slice split over the clients of a job.

    A client gets one host where there are as many hosts as clients, else an equal run of chips: of a real slice, of its
    hosts' chips in turn.

    Args:
        shape: the shape of the slice.
        num_clients: how many clients the job has.
        megacore: whether the two cores of a chip act as one device. It then has the location of the first core,
            and its id is twice the chip's: the ids that TensorFlow's dtensor uses.
        origin: the variable or the option that the shape was given in, for errors.

    Raises:
        ConfigurationError: the chips do not divide over the clients, or `megacore` is asked of chips with one core.
    """

    shape: SliceShape
    num_clients: int
    megacore: bool = False
    origin: str = TOPOLOGY_VARIABLE

    def __post_init__(self) -> None:
        if self.shape.num_chips % self.num_clients:
            raise ConfigurationError(
                f"{self.origin}={self.shape}: {self.shape.num_chips} chips do not divide over "
                f"{self.num_clients} clients; choose a slice whose number of chips is a multiple of {self.num_clients}."
            )
        if self.megacore and self.shape.cores < 2:
            raise ConfigurationError(
                f"enable_megacore=True joins the two cores of a chip, but {self.origin}={self.shape} has chips "
                "with one core; choose chips with two, such as 4x4x1x2 has, or leave enable_megacore out."
            )

    @property
    def num_devices(self) -> int:
        """The number of devices of all clients."""
        return self.shape.num_chips * self._devices_per_chip

    @property
    def devices_per_client(self) -> int:
        """The number of devices of each client."""
        return self.num_devices // self.num_clients

    @property
    def kind(self) -> str:
        """The kind of the devices."""
        return "TPU" if self.shape.real is None else self.shape.real.kind

    def locations(self, client_id: int) -> tuple[CoreLocation, ...]:
        """Return the locations of a client's devices, by local index."""
        if (real := self.shape.real) is not None:
            depth = real.chips[2]
            return tuple(stacked_location(core, depth) for core in self._real_cores(real, client_id))
        chips = self._block(client_id) if self.shape.num_blocks == self.num_clients else self._run(client_id)
        return tuple(CoreLocation(*chip, core) for chip in chips for core in range(self._devices_per_chip))

    def core_ids(self, client_id: int) -> tuple[int, ...]:
        """Return the core ids of a client's devices, by local index.

        Those of a real slice are its own. Else the ids of all clients are a permutation that is far from the order of
        the devices, so that a wrong merge cannot go unseen: a client's ids are spread over the whole range, and never
        ascend from first to last.
        """
        if (real := self.shape.real) is not None:
            return tuple(core.id for core in self._real_cores(real, client_id))
        number, own = self.num_devices, self.devices_per_client
        multiplier, first = _multiplier(number), client_id * own
        ids = [(multiplier * position + number // 2) % number for position in range(first, first + own)]
        if ids == sorted(ids):
            ids.reverse()
        return tuple(id_ * 2 for id_ in ids) if self.megacore else tuple(ids)

    @property
    def _devices_per_chip(self) -> int:
        return 1 if self.megacore else self.shape.cores

    def _real_cores(self, real: TpuSlice, client_id: int) -> list[SliceCore]:
        count = self.shape.num_cores // self.num_clients
        first = client_id * count
        of_host = real.num_devices // real.num_hosts
        hosts = range(first // of_host, -(-(first + count) // of_host))
        cores = [core for host in hosts for core in real.host_cores(host)]
        skipped = first - hosts.start * of_host
        return [core for core in cores[skipped : skipped + count] if core.core_on_chip < self._devices_per_chip]

    def _block(self, client_id: int) -> list[tuple[int, int, int]]:
        row, column = divmod(client_id, self.shape.x // _BLOCK)
        z, row = divmod(row, self.shape.y // _BLOCK)
        return [(_BLOCK * column + dx, _BLOCK * row + dy, z) for dy in range(_BLOCK) for dx in range(_BLOCK)]

    def _run(self, client_id: int) -> list[tuple[int, int, int]]:
        count = self.shape.num_chips // self.num_clients
        plane = self.shape.x * self.shape.y
        return [
            (chip % self.shape.x, chip % plane // self.shape.x, chip // plane)
            for chip in range(client_id * count, (client_id + 1) * count)
        ]


def _multiplier(count: int) -> int:
    """Return a number coprime to `count`, near its golden section, which spreads neighbours best; 1 only up to 2."""
    if count <= 2:
        return 1
    golden = count * 618 // 1000
    return next(
        candidate
        for distance in range(count)
        for candidate in (golden - distance, golden + distance)
        if 1 < candidate < count and math.gcd(candidate, count) == 1
    )


def _bad_shape(origin: str, text: str, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"{origin}={text!r}: {reason}; give chips along x, y and z and cores per chip, "
        "XxYxZxC with C 1 or 2, such as 4x4x1x2, or XxYxZ, or XxY, or the name of a slice of TPUs, such as v5e:4x4."
    )
