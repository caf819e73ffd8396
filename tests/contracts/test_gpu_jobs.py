"""Jobs of clients on one host that share its GPUs, over stand-ins for the libraries of the driver."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .stand_in import missing_for_stand_ins, stand_in_environ, uuid

pytestmark = pytest.mark.skipif(bool(missing_for_stand_ins()), reason=missing_for_stand_ins() or "all is there")

NAME = "NVIDIA Stand-in"


def test_a_job_of_two_clients(libraries: Path, tmp_path: Path) -> None:
    settings = tmp_path / "settings"
    settings.write_text("gpus 2\nlinks.0.1 4\nlinks.1.0 4\n")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "bringup", "demo", "-n", "2", "--backend", "gpu", "--json"],
        env=stand_in_environ(libraries, settings),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["core_ids"] == [0, 1]
    assert found["topology"]["mesh_shape"] == [1, 1, 2, 1]
    assert [device["kind"] for device in found["devices"]] == [NAME] * 2
    assert found["agree"]


TRAIN = """
import bringup.sync
with bringup.sync.initialize("GPU") as system:
    print([device.kind for device in system.devices])
"""
BY_HAND = "unset BRINGUP_LOCAL_CLIENT_ID BRINGUP_NUM_LOCAL_CLIENTS; "
OF_ITS_OWN = "export CUDA_VISIBLE_DEVICES=$BRINGUP_CLIENT_ID; "


def run_two(libraries: Path, tmp_path: Path, before: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a job of two clients, each on what a shell makes of what the launcher tells it."""
    settings = tmp_path / "settings"
    settings.write_text("gpus 4\nslow_model.1 1\nslow_model.3 1\n")
    client = [*("-m", "bringup", "run", "-n", "2", "--", "sh", "-c", before + 'exec "$0" -P -c "$1"')]
    return subprocess.run(
        [sys.executable, "-P", *client, sys.executable, TRAIN],
        env=stand_in_environ(libraries, settings) | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} | environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize(
    ("before", "environment", "kinds"),
    [
        ("", {}, [NAME, f"{NAME} Lite"] * 2),
        ("", {"CUDA_VISIBLE_DEVICES": "3,2"}, [f"{NAME} Lite", NAME]),
        (OF_ITS_OWN, {}, [NAME, f"{NAME} Lite"]),
    ],
    ids=["all", "some", "their own"],
)
def test_the_launcher_gives_each_client_gpus_of_its_own(
    before: str, environment: dict[str, str], kinds: list[str], libraries: Path, tmp_path: Path
) -> None:
    done = run_two(libraries, tmp_path, before, **environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(str(kinds)) == 2


def test_clients_may_agree_to_share_all_gpus(libraries: Path, tmp_path: Path) -> None:
    done = run_two(libraries, tmp_path, "", BRINGUP_SHARE_DEVICES="1", CUDA_VISIBLE_DEVICES="1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(str([f"{NAME} Lite"] * 2)) == 2


def test_clients_that_bring_up_the_same_gpu_are_refused_by_name(libraries: Path, tmp_path: Path) -> None:
    done = run_two(libraries, tmp_path, BY_HAND)
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert f"have brought up the same device: {NAME} {uuid(0)}, device 0 of client 0 and device 0 of client 1" in said
    assert "(4 devices are so shared)" in said
