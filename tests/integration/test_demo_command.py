"""`bringup demo` with real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

PHASES = {"rendezvous", "devices", "ring", "merge", "commit"}


def demo(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BRINGUP_")}
    return subprocess.run(
        [sys.executable, "-P", "-m", "bringup", "demo", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env=clean | environ,
    )


def demo_json(*arguments: str, **environ: str) -> dict[str, Any]:
    done = demo("--json", *arguments, **environ)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_four_clients_with_a_simulated_slice() -> None:
    found = demo_json("-n", "4")
    assert (found["num_clients"], found["device_type"], found["simulated"], found["agree"]) == (4, "SIM", True, True)
    assert found["disagreements"] == []
    assert [client["client_id"] for client in found["clients"]] == [0, 1, 2, 3]
    assert len({client["pid"] for client in found["clients"]}) == 4
    assert [device["id"] for device in found["devices"]] == list(range(32))
    assert sorted(found["core_ids"]) == list(range(32))
    assert found["core_ids"] == [device["core_id"] for device in found["devices"]]
    assert found["core_ids"] != sorted(found["core_ids"])
    assert found["topology"]["mesh_shape"] == [4, 4, 1, 2]
    coordinates = [one for client in found["topology"]["device_coordinates"] for one in client]
    assert [device["location"] for device in found["devices"]] == coordinates
    assert {phase["phase"] for phase in found["timeline"]} >= PHASES
    assert found["all_reduce"] == [4, 10, 32]
    assert 0 < found["seconds"] < 60
    assert found["seconds"] == max(client["up_after"] for client in found["clients"])


def test_two_clients_with_their_cpus() -> None:
    found = demo_json("-n", "2", "--backend", "cpu")
    assert (found["device_type"], found["simulated"], found["topology"]) == ("CPU", False, None)
    assert found["core_ids"] == list(range(len(found["devices"])))


def test_one_client() -> None:
    found = demo_json("-n", "1")
    assert (found["num_clients"], len(found["devices"]), found["agree"]) == (1, 8, True)


def test_what_a_person_sees() -> None:
    done = demo("-n", "4")
    assert (done.returncode, done.stderr) == (0, "")
    for part in (
        "4 clients, 32 SIM devices",
        "The devices are SIMULATED: they do not exist.",
        "/job:worker/replica:0/task:3/device:SIM:7",
        "mesh shape [4, 4, 1, 2]",
        "      3  2 2 3 3",
        "rendezvous",
        "gave [4, 10, 32]. All clients agree on all of the above.",
        "The last client was up ",
    ):
        assert part in done.stdout


def test_a_long_list_of_devices_is_shortened() -> None:
    done = demo("-n", "2", BRINGUP_SIM_TOPOLOGY="8x8x1x2")
    assert (done.returncode, done.stderr) == (0, "")
    assert "and 108 more" in done.stdout
    assert len(done.stdout.splitlines()) < 70


def test_a_client_that_fails_is_named_with_its_error() -> None:
    done = demo("-n", "3", BRINGUP_SIM_FAULT="2:raise:no such chip")
    assert (done.returncode, done.stdout) == (1, "")
    first, *others = done.stderr.splitlines()
    assert first.startswith("bringup: client 2: DeviceInitializationError: ")
    assert "no such chip" in first
    assert others
    assert all("PeerFailedError: client 2 " in line for line in others)


def test_a_client_that_never_gets_ready_is_named() -> None:
    done = demo("-n", "2", BRINGUP_SIM_FAULT="1:hang", BRINGUP_DEVICE_TIMEOUT="1")
    assert done.returncode == 1
    assert "bringup: client 1: DeviceTimeoutError: " in done.stderr
    assert "PeerFailedError: client 1 " in done.stderr


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"BRINGUP_SIM_TOPOLOGY": "3x3x1x2"}, ": ConfigurationError: BRINGUP_SIM_TOPOLOGY=3x3x1x2"),
        ({"BRINGUP_HEARTBEAT_TIMEOUT": "soon"}, "BRINGUP_HEARTBEAT_TIMEOUT='soon'"),
    ],
)
def test_wrong_settings(environ: dict[str, str], said: str) -> None:
    done = demo("-n", "2", **environ)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
