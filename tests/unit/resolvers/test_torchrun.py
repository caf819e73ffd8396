"""torchrun: real launches, the port of the store, and variables that a script sets for others to complete."""

from __future__ import annotations

import pytest

from bringup.errors import ConfigurationError
from bringup.resolvers.base import Outcome
from bringup.resolvers.torchrun import Torchrun
from bringup.runtime.configuration.resolve import resolve_job

from ...lib.launches import ask, detected, launch, specs

RANK = {"MASTER_ADDR": "h0", "MASTER_PORT": "29500", "WORLD_SIZE": "4", "RANK": "3"}
STEP = {
    "SLURM_JOB_ID": "100",
    "SLURM_STEP_NODELIST": "n[1-4]",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
}


@pytest.mark.parametrize(("name", "host"), [("torchrun", "localhost"), ("torchrun2", "127.0.0.1")])
def test_real_launches(name: str, host: str) -> None:
    found = specs(name)
    (coordinator,) = {spec.coordinator_address for spec in found}
    assert coordinator is not None
    assert coordinator.startswith(f"{host}:")
    assert coordinator != f"{host}:{launch(name)[0]['MASTER_PORT']}"
    assert [spec.client_id for spec in found] == list(range(len(found)))
    assert [(spec.source, spec.num_clients) for spec in found] == [("torchrun", len(found))] * len(found)
    assert [(spec.local_client_id, spec.num_local_clients) for spec in found] == [
        (number % 2, 2) for number in range(len(found))
    ]
    assert found[0].is_loopback


def test_never_the_port_of_the_store() -> None:
    for port in ("1", "29500", "61440", "63488", "65535"):
        assert ask(Torchrun(), RANK | {"MASTER_PORT": port}).coordinator_address not in (None, f"h0:{port}")
    with pytest.raises(ConfigurationError, match=r"BRINGUP_PORT='29500' is MASTER_PORT=29500, where the store"):
        ask(Torchrun(), RANK | {"BRINGUP_PORT": "29500"})


def test_an_ipv6_master() -> None:
    address = ask(Torchrun(), RANK | {"MASTER_ADDR": "fd00::1"}).coordinator_address
    assert address is not None
    assert address.startswith("[fd00::1]:")
    with pytest.raises(ConfigurationError, match="MASTER_ADDR='h0:1' is not a host name"):
        ask(Torchrun(), RANK | {"MASTER_ADDR": "h0:1"})


def test_torchrun_in_a_step_of_slurm_is_the_inner_one() -> None:
    assert resolve_job(environ=RANK | STEP).source == "torchrun"
    assert resolve_job(environ=launch("torchrun")[0] | STEP).source == "torchrun"


def test_a_script_that_leaves_the_rank_to_slurm() -> None:
    script = {name: value for name, value in RANK.items() if name != "RANK"}
    spec = resolve_job(environ=script | STEP)
    assert (spec.source, spec.client_id) == ("slurm", 2)
    assert detected(Torchrun(), script).outcome is Outcome.PARTIAL
    with pytest.raises(ConfigurationError, match="RANK is not set"):
        resolve_job(environ=script)


def test_a_host_that_is_not_set_is_told_once() -> None:
    with pytest.raises(ConfigurationError, match=r"^MASTER_ADDR is not set, and resolver 'torchrun' needs it: "):
        ask(Torchrun(), {name: value for name, value in RANK.items() if name != "MASTER_ADDR"})


@pytest.mark.parametrize("removed", ["MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"])
def test_an_agents_process_that_lacks_a_variable(removed: str) -> None:
    environment = {name: value for name, value in launch("torchrun")[0].items() if name != removed}
    with pytest.raises(ConfigurationError, match=f"{removed} is not set.*torchrun"):
        resolve_job(environ=environment)


@pytest.mark.parametrize(
    "environment",
    [{"RANK": "1"}, {"WORLD_SIZE": "4"}, {"MASTER_ADDR": "h", "MASTER_PORT": "1"}, {"WORLD_SIZE": "1", "RANK": "0"}],
)
def test_what_is_not_torchruns(environment: dict[str, str]) -> None:
    assert detected(Torchrun(), environment).outcome is Outcome.ABSENT
