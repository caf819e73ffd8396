"""Checked copies on several GPUs, some of them busy, broken or wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import cast

import pytest

from bringup.devices.gpu import memory_check as gpu_copies
from bringup.devices.gpu.cuda import ContextReplacedError, CudaCallError
from bringup.devices.gpu.cuda_device import CudaDevice
from bringup.devices.gpu.health import Assessment
from bringup.devices.gpu.inventory import Gpu
from bringup.devices.gpu.memory_check import MemoryCheck
from bringup.devices.gpu.visible_devices import VisibleGpu


class Device:
    """What a `CudaDevice` does, as the test has it."""

    def __init__(self) -> None:
        self.begun = 0
        self.is_released = False
        self.done = True
        self.wrong = ""
        self.failure: CudaCallError | None = None

    def begin_check(self) -> None:
        self._fail()
        self.begun += 1

    def is_checked(self) -> bool:
        self._fail()
        return self.done

    def what_is_wrong(self) -> str:
        return self.wrong

    def release(self) -> None:
        self.is_released = True

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure


GPUS = [Gpu(index, f"GPU-{index}", "H100", f"0000:{index}0:00.0") for index in range(2)]

Run = Callable[[], list[Assessment]]


@pytest.fixture
def devices() -> list[Device]:
    return [Device(), Device()]


@pytest.fixture
def interrupted() -> threading.Event:
    return threading.Event()


@pytest.fixture
def copies(devices: list[Device], interrupted: threading.Event) -> MemoryCheck:
    made = MemoryCheck(interrupted)
    for gpu, device in zip(GPUS, devices, strict=True):
        made.add(VisibleGpu(gpu), cast("CudaDevice", device))
    return made


@pytest.fixture
def run(copies: MemoryCheck) -> Run:
    return lambda: [assessment for _, assessment in copies.run(0.0, GPUS)]


def test_all_is_well(run: Run, devices: list[Device]) -> None:
    assert run() == run() == [Assessment(), Assessment()]
    assert [device.begun for device in devices] == [2, 2]


def test_a_busy_gpu_is_not_ill_and_gets_no_second_copy(run: Run, devices: list[Device]) -> None:
    devices[1].done = False
    for _ in range(3):
        well, busy = run()
        assert well == Assessment()
        assert not busy.faults
        assert "other work keeps it busy: it has not come to a small copy that was asked of it 0 s ago" in busy.notices
    assert [device.begun for device in devices] == [3, 1]
    devices[1].done = True
    assert run() == [Assessment(), Assessment()]
    devices[1].wrong = "a pattern came back changed"
    assert run()[1].faults == (
        "it gave wrong data: a pattern came back changed; take it out of the job, and have it tested",
    )


def test_a_gpu_that_is_busy_for_too_long_is_stuck(
    run: Run, devices: list[Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_copies, "_STUCK_AFTER", 0.0)
    devices[0].done = False
    assessment = run()[0]
    assert "other work keeps it busy" in assessment.faults[0]
    assert not assessment.is_permanent


def test_a_broken_context_stays_broken(run: Run, devices: list[Device]) -> None:
    devices[0].failure = CudaCallError(700, "cuStreamQuery gave CUDA_ERROR_ILLEGAL_ADDRESS (an illegal access)")
    for _ in range(2):
        assessment = run()[0]
        assert assessment.is_permanent
        assert assessment.faults[0].startswith(
            "it fails every call of CUDA in this process: cuStreamQuery gave CUDA_ERROR_ILLEGAL_ADDRESS"
        )


@pytest.mark.parametrize("code", [1, 2, 304, 400, 800, 805, 999, -1])
def test_an_error_that_may_pass_is_tried_again(code: int, run: Run, devices: list[Device]) -> None:
    devices[0].failure = CudaCallError(code, "cuStreamQuery gave an error")
    for _ in range(2):
        ill, well = run()
        assert ill.faults[0].startswith("a call of CUDA failed: cuStreamQuery gave an error; look at")
        assert not ill.is_permanent
        assert well == Assessment()
    devices[0].failure = None
    assert run() == [Assessment(), Assessment()]


@pytest.mark.parametrize("code", range(900, 909))
@pytest.mark.parametrize("is_begun", [False, True])
def test_a_capture_is_no_fault(code: int, is_begun: bool, run: Run, devices: list[Device]) -> None:
    if is_begun:
        devices[0].done = False
        run()
    devices[0].failure = CudaCallError(code, "cuStreamQuery gave an error")
    ill, well = run()
    assert (ill.faults, well) == ((), Assessment())
    assert "captures a CUDA graph" in ill.notices[0]
    devices[0].failure, devices[0].done = None, True
    assert run() == [Assessment(), Assessment()]


def test_a_context_that_was_reset_is_not_used_again(run: Run, devices: list[Device]) -> None:
    devices[0].failure = ContextReplacedError()
    run()
    devices[0].failure = None
    ill, well = run()
    assert (ill.faults, ill.is_permanent, well) == ((), False, Assessment())
    assert "the program has reset it" in ill.notices[0]
    assert [device.begun for device in devices] == [0, 2]


def test_a_gpu_that_is_lost_is_not_called(copies: MemoryCheck, devices: list[Device]) -> None:
    assert [visible.gpu for visible, _ in copies.run(0.0, GPUS[1:])] == GPUS[1:]
    assert [device.begun for device in devices] == [0, 1]


def test_waiting_can_be_cut_short(copies: MemoryCheck, devices: list[Device], interrupted: threading.Event) -> None:
    devices[0].done = False
    interrupted.set()
    assert copies.run(60.0, GPUS)[0][1].notices


def test_all_are_released_once(copies: MemoryCheck, devices: list[Device]) -> None:
    copies.release()
    copies.release()
    assert all(device.is_released for device in devices)
    assert copies.run(0.0, GPUS) == []
