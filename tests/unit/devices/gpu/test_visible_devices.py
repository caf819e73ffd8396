"""`CUDA_VISIBLE_DEVICES`, read as CUDA reads it."""

from __future__ import annotations

import pytest

from bringup.devices.gpu.inventory import Gpu, MigDevice
from bringup.devices.gpu.visible_devices import visible_gpus

GPUS = [
    Gpu(index, f"GPU-{start}0000-0000-0000-0000-00000000000{index}", "H100", f"0000:{index}0:00.0")
    for index, start in enumerate(("aaa1", "aaa2", "bbb1", "ccc1"))
]


def shown(value: str | None, gpus: list[Gpu] = GPUS, **environment: str) -> list[int]:
    if value is not None:
        environment["CUDA_VISIBLE_DEVICES"] = value
    return [visible.gpu.index for visible in visible_gpus(gpus, environment).gpus]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, [0, 1, 2, 3]),
        ("0,1,2,3", [0, 1, 2, 3]),
        ("2,1", [2, 1]),
        (" 3 , 0", [3, 0]),
        ("+1", [1]),
        ("1gpu2,2ampere", [1, 2]),
        ("0,2,-1,1", [0, 2]),
        ("-1", []),
        ("0,7,1", [0]),
        ("7", []),
        ("0,,1", [0]),
        ("", []),
        (" ", []),
        ("none", []),
        ("NoDevFiles", []),
        ("0,1,0", []),
        ("0,GPU-aaa2", [0]),
        ("GPU-aaa20000-0000-0000-0000-000000000001", [1]),
        ("GPU-bbb,GPU-aaa1", [2, 0]),
        ("GPU-bbb,0", [2]),
        ("GPU-aaa", []),
        ("GPU-ccc,GPU-ddd,GPU-bbb", [3]),
        ("GPU-ccc,GPU-c", []),
        ("gpu-ccc", []),
        ("MIG-1", []),
    ],
)
def test_it_is_read_as_cuda_does(value: str | None, expected: list[int]) -> None:
    assert shown(value) == expected


@pytest.mark.parametrize(
    ("value", "note", "is_cut_short"),
    [
        (None, "", False),
        ("1", "CUDA_VISIBLE_DEVICES='1'", False),
        ("", "CUDA_VISIBLE_DEVICES='' hides all GPUs", False),
        ("1,-1", "CUDA_VISIBLE_DEVICES='1,-1'", False),
        ("1, 9", "CUDA_VISIBLE_DEVICES='1, 9': CUDA ignores it from '9' on, as there is no such GPU", True),
        ("GPU-zzz", "CUDA_VISIBLE_DEVICES='GPU-zzz': CUDA ignores it from 'GPU-zzz' on, as there is no such GPU", True),
        ("2,2", "CUDA_VISIBLE_DEVICES='2,2' hides all GPUs, as it names '2' twice", True),
    ],
)
def test_it_is_said_what_cuda_makes_of_it(value: str | None, note: str, is_cut_short: bool) -> None:
    visible = visible_gpus(GPUS, {} if value is None else {"CUDA_VISIBLE_DEVICES": value})
    assert (visible.note, visible.is_cut_short) == (note, is_cut_short)


def test_numbers_among_different_gpus_count_from_the_fastest_unless_the_order_is_set() -> None:
    gpus = [*GPUS[:3], Gpu(3, "GPU-x", "A2", "0000:30:00.0")]
    environment = {"CUDA_VISIBLE_DEVICES": "1"}
    assert "count from the fastest GPU on, as CUDA_DEVICE_ORDER" in visible_gpus(gpus, environment).note
    for other in (
        environment | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        {"CUDA_VISIBLE_DEVICES": "GPU-x"},
        {},
    ):
        assert "fastest" not in visible_gpus(gpus, other).note


MIGS = tuple(MigDevice(f"MIG-{part}0000", part, 0, "H100 MIG 1g.10gb") for part in (1, 2))
WITH_MIG = [GPUS[0], Gpu(1, "GPU-mmm", "H100", "0000:10:00.0", mig=MIGS), Gpu(2, "GPU-nnn", "H100", "x", mig=())]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ["GPU-aaa10000-0000-0000-0000-000000000000", "MIG-10000", "GPU-nnn"]),
        ("1,0", ["MIG-10000", "GPU-aaa10000-0000-0000-0000-000000000000"]),
        ("GPU-mmm", ["MIG-10000"]),
        ("MIG-20000", ["MIG-20000"]),
        ("MIG-2,MIG-1", ["MIG-20000", "MIG-10000"]),
        ("MIG-", []),
        ("MIG-GPU-mmm/2/0", ["MIG-20000"]),
        ("MIG-GPU-mmm/3/0", []),
        ("MIG-2,GPU-aaa1", ["MIG-20000"]),
    ],
)
def test_mig_devices(value: str | None, expected: list[str]) -> None:
    environment = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    assert [visible.uuid for visible in visible_gpus(WITH_MIG, environment).gpus] == expected


def test_a_mig_device_is_named_with_its_gpu() -> None:
    (visible,) = visible_gpus(WITH_MIG, {"CUDA_VISIBLE_DEVICES": "MIG-2"}).gpus
    assert visible.kind == "H100 MIG 1g.10gb"
    assert str(visible) == "H100 MIG 1g.10gb (MIG-20000) on GPU 1 (H100, PCI 0000:10:00.0, GPU-mmm)"
