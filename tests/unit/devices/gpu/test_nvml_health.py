"""GPU health while the driver reports errors faster than they can be read."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

from bringup.devices.gpu.inventory import Gpu
from bringup.devices.gpu.nvml import Nvml
from bringup.devices.gpu.nvml_health import GpuHealthReader

GPU = Gpu(0, "GPU-0", "H100", "0000:10:00.0")
XID = 0x8


class Storm:
    """A session in which there is always one more error."""

    session = 0

    def __init__(self) -> None:
        self.told = 0
        self.interrupted = threading.Event()
        self.interrupt_at = 0

    def ask(self, function: str, *_: Any) -> Any:
        if function == "nvmlDeviceGetUUID":
            return GPU.uuid
        if function == "nvmlEventSetWait_v2":
            self.told += 1
            if self.told == self.interrupt_at:
                self.interrupted.set()
            return SimpleNamespace(device=0, eventType=XID, eventData=31 if self.told % 2 else 13)
        return 1

    def ask_optional(self, *_: Any) -> None:
        return None

    def constant(self, _: str) -> None:
        return None

    def revive(self) -> None:
        pass


def watch(storm: Storm) -> GpuHealthReader:
    return GpuHealthReader(cast("Nvml", storm), [GPU], storm.interrupted)


def test_a_reading_takes_in_so_many_and_counts_them() -> None:
    storm = Storm()
    one = watch(storm)
    for reading in (1, 2):
        ((kept, xids),) = ((gpu, found.xids) for gpu, found in one.read().items())
        assert kept == GPU
        assert xids == ((13, reading * 5000), (31, reading * 5000))
    assert storm.told == 20_000


def test_a_reading_can_be_cut_short() -> None:
    storm = Storm()
    storm.interrupt_at = 7
    assert watch(storm).read()[GPU].xids == ((13, 3), (31, 4))
    assert storm.told == 7
