"""The kinds of all devices of a job, which travel with the merge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ...devices.base import LocalDevice
from ...transport.wire.control import decode, encode
from ...transport.wire.messages import KindList, KindRun
from .id_ranges import join_runs, runs_of


def own_kinds(devices: Sequence[LocalDevice]) -> bytes:
    """Return the wire form of the kinds of this client's devices."""
    return encode(KindList(runs_of(device.kind for device in devices)))


def kinds_of(forms: Iterable[bytes]) -> DeviceKinds:
    """Return the kinds of all devices, given the wire forms of all clients, which mostly are the same."""
    places: dict[bytes, int] = {}
    which = [places.setdefault(form, len(places)) for form in forms]
    return DeviceKinds(b"".join(places), tuple(map(len, places)), np.array(which, np.intp))


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
    assert isinstance(message, KindList), "all clients hold something else than kinds"
    return message.kinds
