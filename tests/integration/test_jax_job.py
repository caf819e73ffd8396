"""A job with the devices of a real framework: jax's, over the whole path, in real processes."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")


def demo(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("BRINGUP_", "JAX_", "XLA_"))}
    return subprocess.run(
        [sys.executable, "-P", "-m", "bringup", "demo", "--backend", "jax", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env=clean | {"JAX_PLATFORMS": "cpu"} | environ,
    )


def test_two_clients_with_eight_devices_each() -> None:
    done = demo("-n", "2", "--json", XLA_FLAGS="--xla_force_host_platform_device_count=8")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["device_type"], found["simulated"], found["topology"]) == ("JAX", False, None)
    assert found["core_ids"] == list(range(16))
    assert [client["num_devices"] for client in found["clients"]] == [8, 8]
    assert {device["kind"] for device in found["devices"]} == {"cpu"}
    assert found["devices"][-1]["name"] == "/job:worker/replica:0/task:1/device:JAX:7"
    assert found["all_reduce"] == [2, 3, 16]
    assert found["agree"]


def test_a_platform_that_is_not_there_is_said_once_by_each_client() -> None:
    done = demo("-n", "2", JAX_PLATFORMS="nonsense")
    assert (done.returncode, done.stdout) == (1, "")
    assert "DeviceInitializationError: client " in done.stderr
    assert "JAX_PLATFORMS is 'nonsense'" in done.stderr
    assert "Traceback" not in done.stderr


JOB = """
import asyncio, sys
import numpy as np
import bringup

async def main():
    async with bringup.initialize("JAX", local_device_ids=[2, 0]) as system:
        import jax
        assert len(jax.local_devices()) == 4
        total = await system.all_reduce(np.asarray(jax.numpy.ones(3) * (system.client_id + 1)))
        print(system.device_type, len(system.devices), len(system.local_devices), total.tolist())

asyncio.run(main())
"""


def test_a_program_goes_on_with_jax_after_the_bring_up() -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("BRINGUP_", "JAX_", "XLA_"))}
    environ = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "bringup", "run", "-n", "2", "--", sys.executable, "-P", "-c", JOB],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env=clean | environ,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("JAX 4 2 [3.0, 3.0, 3.0]") == 2
