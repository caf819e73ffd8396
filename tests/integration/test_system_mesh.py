"""Meshes of a job that is up, asked of its system."""

from __future__ import annotations

import pytest

import bringup
from bringup import sync


async def test_a_mesh_is_the_topologys_for_this_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRINGUP_SIM_TOPOLOGY", "v4:2x2x1")
    async with bringup.initialize("SIM") as system:
        topology = system.topology
        assert topology is not None
        mesh = system.mesh((2, 4), ("data", "model"), ring_dims=-1, ring_axes=("x", "y", "core", "z"))
        expected = topology.mesh(0, (2, 4), ("data", "model"), ring_dims=-1, ring_axes=("x", "y", "core", "z"))
        assert isinstance(mesh, bringup.Mesh)
        assert mesh.device_ids.tolist() == expected.device_ids.tolist()
        assert mesh.dim_size("model") == 4
        assert sorted(mesh.local_device_ids) == list(range(8))
        with pytest.raises(bringup.ConfigurationError, match="shape"):
            system.mesh((3, 4), ("data", "model"))


def test_devices_without_a_location_have_no_mesh_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BRINGUP_CPU_LOCATION", raising=False)
    with sync.initialize("CPU", num_logical_cpu_devices=2) as system:
        assert system.topology is None
        with pytest.raises(bringup.TopologyError, match=r"of client 0: the CPU devices .* no location"):
            system.mesh((2,), ("x",))
