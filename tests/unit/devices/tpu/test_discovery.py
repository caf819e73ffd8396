"""Finding TPU chips in the file system, on hosts made of files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bringup.devices.tpu.chips import TpuFindings
from bringup.devices.tpu.discovery import find_tpus, is_off_the_bus

V5E = ("0x0063", "0x00a1")


def add_chip(root: Path, address: str, ids: tuple[str, str] = V5E, *, vendor: str = "0x1ae0", group: str = "") -> Path:
    device = root / "sys/bus/pci/devices" / address
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "device").write_text(f"{ids[0]}\n")
    (device / "subsystem_device").write_text(f"{ids[1]}\n")
    (device / "config").write_bytes(bytes.fromhex("e01a6300") + bytes(60))
    if group:
        (device / "iommu_group").symlink_to(f"../../../../kernel/iommu_groups/{group}")
    return device


def add_node(root: Path, node: str) -> Path:
    path = root / node.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def add_accel(root: Path, number: int, address: str) -> None:
    entry = root / "sys/class/accel" / f"accel{number}"
    entry.mkdir(parents=True)
    (entry / "device").symlink_to(f"../../../bus/pci/devices/{address}")
    add_node(root, f"/dev/accel{number}")


def test_a_host_without_anything(tmp_path: Path) -> None:
    found = find_tpus(tmp_path)
    assert found == TpuFindings()
    assert not found.usable
    assert str(found) == (
        "PCI devices of vendor 0x1ae0 in /sys/bus/pci/devices: none; /dev/accel* and /dev/vfio/*: none"
    )


def test_this_machine_can_be_looked_at() -> None:
    assert str(find_tpus()).startswith("PCI devices of vendor 0x1ae0")


@pytest.mark.parametrize(
    ("ids", "kind"),
    [
        (("0x0027", "0x004e"), "TPU v2"),
        (("0x0027", "0x004f"), "TPU v3"),
        (("0x0056", "0x0000"), "TPU v4 lite"),
        (("0x005e", "0x0000"), "TPU v4"),
        (("0x0062", "0x0000"), "TPU v5"),
        (("0x0063", "0x0000"), "TPU v5 lite"),
        (("0x006F", "0x0000"), "TPU v6 lite"),
        (("0x0076", "0x0000"), "TPU7x"),
    ],
)
def test_kinds_are_those_of_libtpu(tmp_path: Path, ids: tuple[str, str], kind: str) -> None:
    add_chip(tmp_path, "0000:00:04.0", ids)
    (chip,) = find_tpus(tmp_path).chips
    assert (chip.index, chip.kind, chip.pci_address) == (0, kind, "0000:00:04.0")


def test_other_devices_are_no_chips(tmp_path: Path) -> None:
    add_chip(tmp_path, "0000:00:04.0", vendor="0x10de")
    add_chip(tmp_path, "0000:00:05.0", ("0x0042", "0x0000"))
    (tmp_path / "sys/bus/pci/devices/0000:00:06.0").mkdir()
    assert find_tpus(tmp_path).chips == ()


def test_chips_with_their_vfio_groups(tmp_path: Path) -> None:
    for index, group in enumerate(("2", "11", "10", "3")):
        add_chip(tmp_path, f"0000:00:0{4 + index}.0", group=group)
        add_node(tmp_path, f"/dev/vfio/{group}")
    add_node(tmp_path, "/dev/vfio/vfio")
    found = find_tpus(tmp_path)
    assert [chip.node for chip in found.chips] == ["/dev/vfio/2", "/dev/vfio/11", "/dev/vfio/10", "/dev/vfio/3"]
    assert found.nodes == ("/dev/vfio/2", "/dev/vfio/3", "/dev/vfio/10", "/dev/vfio/11")
    assert found.usable
    assert found.chips_of_process(None) == found.chips
    assert str(found.chips[1]) == "chip 1 (TPU v5 lite, PCI 0000:00:05.0, /dev/vfio/11)"


def test_chips_with_their_accel_nodes(tmp_path: Path) -> None:
    for number, address in ((0, "0000:00:05.0"), (1, "0000:00:04.0")):
        add_chip(tmp_path, address, ("0x005e", "0x0000"))
        add_accel(tmp_path, number, address)
    found = find_tpus(tmp_path)
    assert [(chip.pci_address, chip.node) for chip in found.chips] == [
        ("0000:00:04.0", "/dev/accel1"),
        ("0000:00:05.0", "/dev/accel0"),
    ]
    assert found.usable


def test_the_functions_of_a_chip_are_one_chip(tmp_path: Path) -> None:
    for address in ("0000:00:04.0", "0000:00:04.1", "0000:00:05.0", "0000:00:05.1"):
        add_chip(tmp_path, address, ("0x0076", "0x0000"))
    assert [chip.pci_address for chip in find_tpus(tmp_path).chips] == ["0000:00:04.0", "0000:00:05.0"]


def test_chips_without_device_files_are_of_no_use(tmp_path: Path) -> None:
    add_chip(tmp_path, "0000:00:04.0", group="4")
    add_chip(tmp_path, "0000:00:05.0", group="5")
    found = find_tpus(tmp_path)
    assert not found.usable
    assert found.chips_of_process(None) == ()
    # Somebody else's.
    add_node(tmp_path, "/dev/vfio/7")
    assert not find_tpus(tmp_path).usable
    add_node(tmp_path, "/dev/vfio/5")
    found = find_tpus(tmp_path)
    assert found.usable
    assert [chip.index for chip in found.chips_of_process(None)] == [1]


def test_device_files_tell_where_pci_does_not(tmp_path: Path) -> None:
    add_node(tmp_path, "/dev/accel0")
    assert find_tpus(tmp_path).usable


def test_vfio_alone_says_nothing(tmp_path: Path) -> None:
    add_node(tmp_path, "/dev/vfio/0")
    assert not find_tpus(tmp_path).usable
    # Of a chip whose group nobody tells, any may be the file.
    add_chip(tmp_path, "0000:00:04.0")
    assert find_tpus(tmp_path).usable


@pytest.mark.skipif(os.geteuid() == 0, reason="root has every permission")
def test_permissions_that_are_missing_are_told(tmp_path: Path) -> None:
    add_node(tmp_path, "/dev/accel0").chmod(0)
    found = find_tpus(tmp_path)
    assert found.denied == ("/dev/accel0",)
    assert "no permission for /dev/accel0" in str(found)


def test_a_chip_that_answers_nothing_is_off_the_bus(tmp_path: Path) -> None:
    device = add_chip(tmp_path, "0000:00:04.0")
    (chip,) = find_tpus(tmp_path).chips
    assert not is_off_the_bus(chip, tmp_path)
    (device / "config").write_bytes(b"\xff" * 64)
    assert is_off_the_bus(chip, tmp_path)
    (device / "config").unlink()
    assert not is_off_the_bus(chip, tmp_path)
    (device / "vendor").unlink()
    assert is_off_the_bus(chip, tmp_path)
