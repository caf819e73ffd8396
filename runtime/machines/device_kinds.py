"""The kinds of all devices of a job, which travel with the merge.

Each client tells in the first merge how long the wire form of its own kinds is, and its hash. Where all tell the same,
as they mostly do, each knows the kinds of all by its own. Otherwise a further merge carries each distinct form once,
written by the first client that has it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ...devices.base import LocalDevice
from ...errors import TopologyError
from ...transport.wire.control import decode, encode
from ...transport.wire.messages import KindList, KindRun
from .id_ranges import join_runs, runs_of

Int32Array = npt.NDArray[np.int32]
Uint8Array = npt.NDArray[np.uint8]

KIND_COLUMNS = 3
"""The length, and 64 bits of hash: among 100,000 different forms two are the same with one chance in 10^9."""

_BYTES_MAX = 64 * 1024 * 1024
"""Of all distinct kinds: several names for each device of the largest jobs."""


def own_kinds(devices: Sequence[LocalDevice]) -> bytes:
    """Return the wire form of the kinds of this client's devices."""
    return encode(KindList(runs_of(device.kind for device in devices)))


def columns_of(kinds: bytes) -> Int32Array:
    """Return a client's part of the first merge: int32 `[KIND_COLUMNS]`."""
    words = np.frombuffer(hashlib.blake2b(kinds, digest_size=8).digest(), "<i4")
    return np.array([len(kinds), *words], np.int32)


class KindShares:
    """The division of the further merge among the clients that write into it.

    Args:
        columns: int32 `[num_clients, KIND_COLUMNS]`, of all clients.

    Raises:
        TopologyError: the kinds take more bytes than can be merged.
    """

    def __init__(self, columns: Int32Array) -> None:
        _, firsts, which = np.unique(columns, axis=0, return_index=True, return_inverse=True)
        self._firsts = firsts
        self._which = np.ravel(which)
        self._lengths = columns[firsts, 0].astype(np.int64)
        if (size := int(self._lengths.sum())) > _BYTES_MAX:
            raise TopologyError(
                f"the kinds of the devices of this job take {size} bytes, more than {_BYTES_MAX}: client "
                f"{int(columns[:, 0].argmax())} has the most. A kind is the name of a model: its backend is broken."
            )

    @property
    def are_equal(self) -> bool:
        """Whether all clients have the same, so that there is nothing to merge."""
        return len(self._firsts) == 1

    def own_share(self, client_id: int, kinds: bytes) -> Uint8Array:
        """Return this client's part of the further merge."""
        share = np.zeros(int(self._lengths.sum()), np.uint8)
        place = int(self._which[client_id])
        if int(self._firsts[place]) == client_id:
            start = int(self._lengths[:place].sum())
            share[start : start + len(kinds)] = np.frombuffer(kinds, np.uint8)
        return share

    def kinds(self, merged: Uint8Array) -> DeviceKinds:
        """Return the kinds of all, given the merged shares, or those of this client where all have the same."""
        return DeviceKinds(merged.tobytes(), tuple(self._lengths.tolist()), self._which)


@dataclass(frozen=True, eq=False)
class DeviceKinds:
    """The kinds of all devices; decoded where they are first looked at.

    Attributes:
        data: the distinct wire forms, one after the other.
        lengths: theirs.
        which: int `[num_clients]`, which of them is whose.
    """

    data: bytes
    lengths: tuple[int, ...]
    which: npt.NDArray[np.intp]

    @cached_property
    def runs(self) -> tuple[KindRun, ...]:
        """The kinds of all devices, by client, then by local index."""
        ends = np.cumsum(self.lengths).tolist()
        lists = [_runs_in(self.data[end - length : end]) for length, end in zip(self.lengths, ends, strict=True)]
        return join_runs(lists[place] for place in self.which.tolist())


def _runs_in(data: bytes) -> tuple[KindRun, ...]:
    message = decode(data)
    assert isinstance(message, KindList), "all clients have agreed on something else than kinds"
    return message.kinds
