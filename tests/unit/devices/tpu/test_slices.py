"""The slices of TPUs by name, against what libtpu says of them.

`vectors/tpu_slices.json` was made with `jax.experimental.topologies.get_topology_desc` of jax 0.10.2 and libtpu 0.0.42,
which need no hardware: for each name, with its options as JSON after a bar, the kind, the numbers of hosts and devices,
and the BLAKE2 digest (16 bytes) of the JSON list of its devices in libtpu's order, each
`[id, process_index, x, y, z, core_on_chip, slice_index or 0]`; for some the list itself; and the names libtpu refused.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from bringup.devices.base import BackendConfig, CoreLocation
from bringup.devices.sim.backend import SimBackend
from bringup.devices.sim.slice import SimSlice, SliceShape
from bringup.devices.tpu.slices import TpuSlice
from bringup.errors import ConfigurationError

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "tpu_slices.json").read_text())


def rows(name: str) -> list[list[int]]:
    found = TpuSlice.parse(name, "--slice")
    cores = [core for host in range(found.num_hosts) for core in found.host_cores(host)]
    return [[core.id, core.process_index, *core.coords, core.core_on_chip, core.slice_index] for core in cores]


@pytest.mark.parametrize("name", VECTORS["slices"])
def test_libtpu_says_the_same_of_every_slice(name: str) -> None:
    told = VECTORS["slices"][name]
    found = TpuSlice.parse(name, "--slice")
    assert (found.kind, found.num_hosts, found.num_devices) == (told["kind"], told["hosts"], told["devices"])
    assert rows(name) == told.get("rows", rows(name))
    assert hashlib.blake2b(json.dumps(rows(name)).encode(), digest_size=16).hexdigest() == told["digest"]


def test_the_vectors_are_all_there() -> None:
    assert len(VECTORS["slices"]) == 77


@pytest.mark.parametrize("name", VECTORS["refused"])
def test_what_libtpu_refuses_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        TpuSlice.parse(name, "--slice")
    assert f"--slice={name!r} names no slice of TPUs" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("v9:4x4", "there is no TPU 'v9'"),
        (":4x4", "there is no TPU ''"),
        ("v5e:", "'' is not numbers of chips"),
        ("v5e:4x0", "'4x0' is not numbers of chips"),
        ("v5e:٤x٤", "is not numbers of chips"),
        ("v5e:4x4x1", "'4x4x1' has 3 axes, where slices of TPU v5 lite have 2"),
        ("v4:4x4", "'4x4' has 2 axes, where slices of TPU v4 have 3"),
        ("v5e:3x4", "hosts of 2x2x1 chips do not divide 3x4x1"),
        ("v4:100x100x100", "2000000 devices, more than the 100000"),
        ("v5e:4x4|{", "'{' is not JSON"),
        ("v5e:4x4|[1]", "'[1]' is not a JSON object"),
        ('v5e:4x4|{"hosts": 1}', "there is no option 'hosts'; there are chip_config_name, "),
        ('v5e:4x4|{"chip_config_name": ["x"]}', "chip_config_name ['x'] is none of default, inference"),
        ('v5e:4x4|{"chips_per_host_bounds": [2, 2]}', "chips_per_host_bounds [2, 2] is not three whole numbers"),
        ('v5e:4x4|{"chips_per_host_bounds": [2, true, 1]}', "[2, True, 1] is not three whole numbers"),
        ('v5e:4x4|{"num_slices": 0}', "num_slices 0 is not a whole number from 1 to 1000"),
        ('v5e:4x4|{"num_slices": 1001}', "num_slices 1001"),
        ('v5e:4x4|{"wrap": [1, 0, 0]}', "wrap [1, 0, 0] is not three of true and false"),
    ],
)
def test_malformed_names_are_refused_with_the_reason(name: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        TpuSlice.parse(name, "BRINGUP_SIM_TOPOLOGY")
    assert words in str(caught.value)
    assert "such as v5e:4x4" in str(caught.value)


def test_names_are_read_in_any_case() -> None:
    assert TpuSlice.parse(" V5E:4x4 ", "--slice").kind == "TPU v5 lite"
    assert TpuSlice.parse("v7x:2x2x1", "--slice").kind == "TPU7x"


def start(name: str, client_id: int, num_clients: int, **settings: Any) -> list[Any]:
    environment = {"BRINGUP_SIM_TOPOLOGY": name}
    config = BackendConfig(client_id=client_id, num_clients=num_clients, environment=environment, **settings)
    return list(SimBackend(config).start())


def test_the_simulated_slice_has_the_coordinates_and_ids_of_the_real_one() -> None:
    devices = start("v5e:4x4", 1, 4)
    assert [device.core_id for device in devices] == [2, 3, 6, 7]
    assert [device.location for device in devices] == [(2, 0, 0, 0), (3, 0, 0, 0), (2, 1, 0, 0), (3, 1, 0, 0)]
    assert {device.kind for device in devices} == {"SIM TPU v5 lite"}


@pytest.mark.parametrize("name", VECTORS["slices"])
def test_clients_together_have_every_real_slice(name: str) -> None:
    shape = SliceShape.parse(name)
    part = SimSlice(shape, shape.num_blocks)
    ids = [core_id for client in range(part.num_clients) for core_id in part.core_ids(client)]
    locations = [location for client in range(part.num_clients) for location in part.locations(client)]
    told = rows(name)
    assert ids == [row[0] for row in told]
    assert len(set(locations)) == len(locations) == len(told)
    first = [location for location, row in zip(locations, told, strict=True) if row[6] == 0]
    assert first == [CoreLocation(*row[2:6]) for row in told if row[6] == 0]


def test_slices_of_one_job_are_stacked() -> None:
    part = SimSlice(SliceShape.parse('v5e:2x4|{"num_slices": 2}'), 4)
    assert [part.locations(client)[0] for client in range(4)] == [
        (0, 0, 0, 0),
        (0, 2, 0, 0),
        (0, 0, 1, 0),
        (0, 2, 1, 0),
    ]
    assert part.core_ids(2) == (200000, 200001, 200002, 200003)


@pytest.mark.parametrize("clients", [1, 2, 8, 16])
def test_other_numbers_of_clients_get_runs_of_the_hosts_chips(clients: int) -> None:
    part = SimSlice(SliceShape.parse("v3:4x4"), clients)
    assert part.devices_per_client == 32 // clients
    ids = [core_id for client in range(clients) for core_id in part.core_ids(client)]
    assert ids == [row[0] for row in rows("v3:4x4")]


def test_megacore_takes_the_first_core_of_each_chip() -> None:
    devices = start("v4:2x2x1", 0, 1, enable_megacore=True)
    assert [(device.core_id, device.location) for device in devices] == [
        (0, (0, 0, 0, 0)),
        (2, (1, 0, 0, 0)),
        (4, (0, 1, 0, 0)),
        (6, (1, 1, 0, 0)),
    ]
    with pytest.raises(ConfigurationError, match="BRINGUP_SIM_TOPOLOGY=v5e:2x2 has chips with one core"):
        start("v5e:2x2", 0, 1, enable_megacore=True)


def test_clients_that_do_not_divide_a_slice_are_refused_with_its_name() -> None:
    with pytest.raises(ConfigurationError, match="BRINGUP_SIM_TOPOLOGY=v5e:4x4: 16 chips do not divide over 3 clients"):
        start("v5e:4x4", 0, 3)


def test_discovery_says_the_name() -> None:
    environment = {"BRINGUP_SIM_TOPOLOGY": "v5e:4x4"}
    found = SimBackend(BackendConfig(num_clients=4, environment=environment)).discover()
    assert found.detail == "simulated slice v5e:4x4 of 16 devices, 4 of them on client 0 of 4"
