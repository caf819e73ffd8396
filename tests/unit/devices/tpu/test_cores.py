"""From libtpu's devices to those of a job, on every slice that libtpu describes.

The objects stand in for those of `jax.devices("tpu")`, which have the same attributes as libtpu's descriptions of
slices; `vectors/tpu_slices.json` has the digests of the latter (see `test_tpu_slices.py`).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bringup.devices.base import CoreLocation
from bringup.devices.sim.slice import SimSlice, SliceShape
from bringup.devices.tpu.cores import JobCore, core_of, cores_of_job, join_chips
from bringup.devices.tpu.environment import TpuEnvironment
from bringup.devices.tpu.slices import SliceCore, TpuSlice
from bringup.errors import ConfigurationError, DeviceInitializationError

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "tpu_slices.json").read_text())["slices"]
ALONE = TpuEnvironment()


def jax_device(core: SliceCore, *, several: bool = True) -> SimpleNamespace:
    """Return what jax has for a core. Of one slice alone, libtpu gives no index."""
    x, y, z = core.coords
    index = {"slice_index": core.slice_index} if several else {}
    return SimpleNamespace(
        id=core.id, process_index=core.process_index, coords=[x, y, z], core_on_chip=core.core_on_chip, **index
    )


def hosts_of(name: str) -> list[list[SimpleNamespace]]:
    found = TpuSlice.parse(name, "name")
    several = found.num_slices > 1
    return [[jax_device(core, several=several) for core in found.host_cores(host)] for host in range(found.num_hosts)]


def job_cores(name: str, **settings: Any) -> list[tuple[JobCore, ...]]:
    """Return the cores of every client of a job whose clients are the hosts of a slice."""
    hosts = [[core_of(device) for device in host] for host in hosts_of(name)]
    everything = [core for host in hosts for core in host]
    return [cores_of_job(host, everything, len(hosts), ALONE) for host in hosts]


def location(core: JobCore) -> CoreLocation:
    assert core.location is not None
    return core.location


@pytest.mark.parametrize("name", VECTORS)
def test_every_slice_comes_out_as_libtpu_describes_it(name: str) -> None:
    clients = job_cores(name)
    found = TpuSlice.parse(name, "name")
    depth = found.chips[2]
    rows = []
    for process, cores in enumerate(clients):
        for core in cores:
            x, y, stacked, on_chip = location(core)
            slice_index, z = divmod(stacked, depth)
            rows.append([core.core_id, process, x, y, z, on_chip, slice_index])
    assert hashlib.blake2b(json.dumps(rows).encode(), digest_size=16).hexdigest() == VECTORS[name]["digest"]


@pytest.mark.parametrize("name", VECTORS)
def test_the_simulated_slice_is_the_same(name: str) -> None:
    shape = SliceShape.parse(name)
    simulated = SimSlice(shape, shape.num_blocks)
    for client_id, cores in enumerate(job_cores(name)):
        assert tuple(core.core_id for core in cores) == simulated.core_ids(client_id)
        assert tuple(core.location for core in cores) == simulated.locations(client_id)


@pytest.mark.parametrize(("one", "several"), [("v5e:2x4", 2), ("v6e:4x4", 4), ("tpu7x:2x2x1", 2), ("v4:2x2x2", 2)])
def test_a_slice_that_sees_itself_alone_takes_its_place_among_the_others(one: str, several: int) -> None:
    told = job_cores(f'{one}|{{"num_slices": {several}}}')
    hosts = [[core_of(device) for device in host] for host in hosts_of(one)]
    everything = [core for host in hosts for core in host]
    seen = [
        cores_of_job(host, everything, len(told), TpuEnvironment(num_slices=several, slice_id=slice_id))
        for slice_id in range(several)
        for host in hosts
    ]
    assert seen == told


@pytest.mark.parametrize(("num_clients", "environment"), [(4, ALONE), (3, TpuEnvironment(num_slices=2))])
def test_where_libtpu_sees_a_part_of_the_job_there_are_neither_ids_nor_locations(
    num_clients: int, environment: TpuEnvironment
) -> None:
    cores = [core_of(device) for device in hosts_of("v5e:2x2")[0]]
    found = cores_of_job(cores, cores, num_clients, environment)
    assert found == tuple(JobCore(None, None, (index,)) for index in range(4))


def test_core_index_and_depth_may_be_left_out() -> None:
    core = core_of(SimpleNamespace(id=3, process_index=1, coords=(1, 2), core_on_chip=None, slice_index=None))
    assert core == SliceCore(3, 1, (1, 2, 0), 0, 0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"coords": None}, "does not say where it is"),
        ({"coords": "up"}, "does not say where it is"),
        ({"coords": ()}, "does not say where it is"),
        ({"id": None}, "does not say where it is"),
        ({"process_index": "x"}, "does not say where it is"),
        ({"id": -1}, "likely a hardware failure"),
        ({"coords": (0, -1, 0)}, "likely a hardware failure"),
    ],
)
def test_devices_that_make_no_sense_are_refused(changes: dict[str, Any], words: str) -> None:
    device = SimpleNamespace(**{"id": 0, "process_index": 0, "coords": (0, 0, 0), "core_on_chip": 0, **changes})
    with pytest.raises(DeviceInitializationError, match=words):
        core_of(device)
    with pytest.raises(DeviceInitializationError, match="does not say where it is"):
        core_of(object())


V4 = ["v4:2x2x1", "v4:2x2x2", "v4:2x2x4", "v4:4x4x4"]


@pytest.mark.parametrize("name", V4)
def test_megacore_gives_the_ids_of_dtensor_whoever_joins_the_cores(name: str) -> None:
    joined_here = [join_chips(cores, "TPU v4", "it") for cores in job_cores(name)]
    by_libtpu = job_cores(f'{name}|{{"chip_config_name": "megacore"}}')
    joined_there = [join_chips(cores, "TPU v4", "it") for cores in by_libtpu]
    for here, there, chips in zip(joined_here, joined_there, by_libtpu, strict=True):
        # dtensor doubles the ids, which count chips.
        assert [core.core_id for core in here] == [2 * (chip.core_id or 0) for chip in chips]
        assert [core.core_id for core in there] == [core.core_id for core in here]
        assert [core.location for core in there] == [core.location for core in here]
        assert [core.members for core in here] == [(2 * index, 2 * index + 1) for index in range(len(here))]
        assert [core.members for core in there] == [(index,) for index in range(len(there))]


def test_the_simulated_slice_joins_cores_in_the_same_way() -> None:
    shape = SliceShape.parse("v4:2x2x4")
    simulated = SimSlice(shape, shape.num_blocks, megacore=True)
    for client_id, cores in enumerate(job_cores("v4:2x2x4")):
        joined = join_chips(cores, "TPU v4", "it")
        assert tuple(core.core_id for core in joined) == simulated.core_ids(client_id)
        assert tuple(core.location for core in joined) == simulated.locations(client_id)


def test_megacore_of_several_slices_keeps_their_ids_apart() -> None:
    options = '"num_slices": 2'
    here = [join_chips(cores, "TPU v4", "it") for cores in job_cores(f"v4:2x2x2|{{{options}}}")]
    name = f'v4:2x2x2|{{{options}, "chip_config_name": "megacore"}}'
    there = [join_chips(cores, "TPU v4", "it") for cores in job_cores(name)]
    ids = [[core.core_id for core in cores] for cores in here]
    assert ids == [[core.core_id for core in cores] for cores in there]
    assert ids[2] == [200000, 200002, 200004, 200006]


def test_megacore_asks_for_two_cores() -> None:
    (cores,) = job_cores("v5e:2x2")
    with pytest.raises(ConfigurationError, match="the chips of client 3 are TPU v5 lite, with one core each"):
        join_chips(cores, "TPU v5 lite", "client 3")


def test_megacore_asks_for_whole_chips() -> None:
    (cores,) = job_cores("v4:2x2x1")
    with pytest.raises(ConfigurationError, match=r"it has 1 core of the chip at \(1, 1, 0\)"):
        join_chips(cores[:-1], "TPU v4", "it")
    with pytest.raises(ConfigurationError, match=r"it has 1 core of the chip at \(0, 0, 0\)"):
        join_chips(cores[1:], "TPU v4", "it")


def test_megacore_asks_for_locations() -> None:
    with pytest.raises(ConfigurationError, match="libtpu does not know all clients of the job"):
        join_chips([JobCore(None, None, (0,))], "TPU v4", "it")
