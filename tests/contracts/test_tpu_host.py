"""A TPU host as the kernel shows it, in a mount namespace of its own: the TPU backend as a user's process has it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap

import pytest

UNSHARE = ("unshare", "--mount", "--propagation", "private")

# Four v4 chips; their device files are there, and are nothing that libtpu could use.
HOST = """
    set -e
    mount -t tmpfs none /sys/bus/pci/devices
    for i in 0 1 2 3; do
        chip=/sys/bus/pci/devices/0000:00:0$((4 + i)).0
        mkdir $chip
        echo 0x1ae0 > $chip/vendor
        echo 0x005e > $chip/device
        echo 0x0000 > $chip/subsystem_device
    done
    folder=$(mktemp -d)
    mount -t tmpfs none $folder
    for node in null:1:3 zero:1:5 random:1:8 urandom:1:9; do
        mknod -m 666 $folder/${node%%:*} c $(echo ${node#*:} | tr : ' ')
    done
    mkdir $folder/shm
    [ -z "$NODES" ] || for i in 0 1 2 3; do mknod $folder/accel$i c 1 3; done
    mount --bind $folder /dev
    exec "$@"
"""

LOOK = """
    import os
    from bringup.devices.base import BackendConfig
    from bringup.devices.isolation.backend import IsolatedBackend
    from bringup.devices.registry import create_backend
    from bringup.errors import DeviceError

    config = BackendConfig(client_id=3, num_clients=4, environment=dict(os.environ))
    for backend in (create_backend("TPU", config), IsolatedBackend("TPU", config)):
        print(backend.discover().present, backend.discover().detail)
        try:
            backend.start()
        except DeviceError as error:
            print(type(error).__name__, error.client_id, str(error).replace("\\n", " "))
        backend.stop()
"""


def may_mount() -> bool:
    if os.geteuid() or shutil.which("unshare") is None or not os.path.isdir("/sys/bus/pci/devices"):
        return False
    command = [*UNSHARE, "mount", "-t", "tmpfs", "none", "/sys/bus/pci/devices"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not may_mount(), reason="a mount namespace needs root")


def look(nodes: str) -> list[str]:
    """Return what is printed on the host: for each backend, its discovery and what `start` raises."""
    done = subprocess.run(
        [*UNSHARE, "bash", "-c", textwrap.dedent(HOST), "host", sys.executable, "-P", "-c", textwrap.dedent(LOOK)],
        env=os.environ | {"NODES": nodes, "TPU_SKIP_MDS_QUERY": "1", "JAX_PLATFORMS": "tpu"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_chips_and_their_device_files_are_found() -> None:
    here, refusal, isolated, isolated_refusal = look("yes")
    assert here.startswith("True PCI devices of vendor 0x1ae0 in /sys/bus/pci/devices: 4 (TPU v4); ")
    assert "/dev/accel0, /dev/accel1, /dev/accel2, /dev/accel3" in here
    assert isolated == here
    for text in (refusal, isolated_refusal):
        # What is missing depends on what is installed: jax, libtpu, or else the chips. libtpu lets one process
        # in at a time, even so.
        if "A TPU belongs to one process at a time" in text:
            assert text is isolated_refusal
        elif text.startswith("DeviceInitializationError 3 the TPUs of client 3 on host "):
            assert "4 chips: chip 0 (TPU v4, PCI 0000:00:04.0), chip 1" in text
            assert "pip install 'bringup[tpu]'" in text or "likely a hardware failure" in text
        else:
            assert text.startswith("DeviceNotFoundError 3 Initialization failed, no valid TPUs found. ")
            assert "libtpu said: NOT_FOUND" in text


def test_chips_without_device_files_are_not_there() -> None:
    here, refusal, isolated, isolated_refusal = look("")
    assert here.startswith("False PCI devices of vendor 0x1ae0 in /sys/bus/pci/devices: 4 (TPU v4); ")
    assert isolated == here
    assert refusal == isolated_refusal
    assert refusal.startswith("DeviceNotFoundError 3 Initialization failed, no valid TPUs found. ")
    assert "There are chips, but none of their device files" in refusal
