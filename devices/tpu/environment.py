"""The TPU slice of a host, as its environment describes it. Pure.

libtpu reads these variables itself, and judges them; here they are read for the reader of a message. One that is
malformed counts as not set.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import ConfigurationError
from .slices import Extents3, TpuSlice

_VARIABLES = (
    "TPU_ACCELERATOR_TYPE",
    "TPU_TOPOLOGY",
    "TPU_WORKER_ID",
    "TPU_WORKER_HOSTNAMES",
    "TPU_CHIPS_PER_HOST_BOUNDS",
    "TPU_HOST_BOUNDS",
    "TPU_CHIPS_PER_PROCESS_BOUNDS",
    "TPU_PROCESS_BOUNDS",
    "TPU_PROCESS_ADDRESSES",
    "TPU_VISIBLE_CHIPS",
    "TPU_VISIBLE_DEVICES",
    "TPU_MEGACORE",
    "TPU_SKIP_MDS_QUERY",
    "TPU_LIBRARY_PATH",
    "TPU_LOAD_LIBRARY",
    "CLOUD_TPU_TASK_ID",
    "MEGASCALE_NUM_SLICES",
    "MEGASCALE_SLICE_ID",
    "JAX_PLATFORMS",
)
_SHOWN_CHARACTERS_MAX = 120

# What begins TPU_ACCELERATOR_TYPE -> the generation of its slices.
_GENERATIONS = {"v5litepod": "v5e", "v7x": "tpu7x"}


@dataclass(frozen=True, slots=True)
class TpuEnvironment:
    """The description of a slice in the environment; missing and malformed values are `None`.

    Attributes:
        accelerator_type: e.g. `v5litepod-16`.
        worker_id: which of the slice's hosts this is.
        chips_of_host: the chips of a host along x, y and z.
        hosts: the hosts of the slice along x, y and z.
        visible_chips: how many of the host's chips this process may use.
        num_slices: how many slices the job has.
        slice_id: which of them this host is in.
    """

    accelerator_type: str | None = None
    worker_id: int | None = None
    chips_of_host: Extents3 | None = None
    hosts: Extents3 | None = None
    visible_chips: int | None = None
    num_slices: int = 1
    slice_id: int = 0

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> TpuEnvironment:
        """Read the variables."""
        visible = visible_chips(environment)
        return cls(
            accelerator_type=_type(environment.get("TPU_ACCELERATOR_TYPE", "")),
            worker_id=_number(environment.get("TPU_WORKER_ID") or environment.get("CLOUD_TPU_TASK_ID") or ""),
            chips_of_host=_bounds(
                environment.get("TPU_CHIPS_PER_PROCESS_BOUNDS") or environment.get("TPU_CHIPS_PER_HOST_BOUNDS") or ""
            ),
            hosts=_bounds(environment.get("TPU_PROCESS_BOUNDS") or environment.get("TPU_HOST_BOUNDS") or ""),
            visible_chips=len(visible) if visible is not None else None,
            num_slices=_number(environment.get("MEGASCALE_NUM_SLICES", "")) or 1,
            slice_id=_number(environment.get("MEGASCALE_SLICE_ID", "")) or 0,
        )

    @property
    def chips_expected(self) -> int | None:
        """The number of chips of this process, if known."""
        return self.visible_chips or (math.prod(self.chips_of_host) if self.chips_of_host is not None else None)

    @property
    def slice(self) -> TpuSlice | None:
        """The slice, if its kind and bounds are known and name one that exists."""
        if self.accelerator_type is None or self.chips_of_host is None or self.hosts is None:
            return None
        prefix = self.accelerator_type.rpartition("-")[0]
        x, y, z = (own * count for own, count in zip(self.chips_of_host, self.hosts, strict=True))
        bounds = "[" + ",".join(map(str, self.chips_of_host)) + "]"
        for layout in (f"{x}x{y}x{z}", *([f"{x}x{y}"] if z == 1 else [])):
            name = f'{_GENERATIONS.get(prefix, prefix)}:{layout}|{{"chips_per_host_bounds":{bounds}}}'
            try:
                return TpuSlice.parse(name, "TPU_ACCELERATOR_TYPE")
            except ConfigurationError:
                continue
        return None

    def __str__(self) -> str:
        """Say which host of which slice this is, e.g. `host 1 of 4 of v5e:4x4`; empty where that is not known."""
        if (found := self.slice) is None:
            return ""
        host = "" if self.worker_id is None else f"host {self.worker_id} of {found.num_hosts} of "
        number = f", slice {self.slice_id} of {self.num_slices}" if self.num_slices > 1 else ""
        return f"{host}{found.name.partition('|')[0]}{number}"


def visible_chips(environment: Mapping[str, str]) -> frozenset[int] | None:
    """Return the indices of the chips that the process may use; `None` where unknown."""
    text = environment.get("TPU_VISIBLE_CHIPS") or environment.get("TPU_VISIBLE_DEVICES") or ""
    if not re.fullmatch(r"[0-9]{1,9}(,[0-9]{1,9})*", text, re.ASCII):
        return None
    return frozenset(map(int, text.split(",")))


def told(environment: Mapping[str, str]) -> str:
    """List the variables of libtpu that are set: `TPU_WORKER_ID=1, ...`."""
    values = ((name, environment.get(name)) for name in _VARIABLES)
    return ", ".join(f"{name}={value[:_SHOWN_CHARACTERS_MAX]}" for name, value in values if value) or "none"


def _type(text: str) -> str | None:
    return text if re.fullmatch(r"[a-z0-9]{1,32}-[0-9]{1,9}", text, re.ASCII) else None


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text.strip(), re.ASCII) else None


def _bounds(text: str) -> Extents3 | None:
    if not re.fullmatch(r"[1-9][0-9]{0,5}(,[1-9][0-9]{0,5}){1,2}", text.strip(), re.ASCII):
        return None
    x, y, z = (*map(int, text.split(",")), 1)[:3]
    return x, y, z
