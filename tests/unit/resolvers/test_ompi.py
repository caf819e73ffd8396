"""Open MPI 4 and 5: real launches on one host and on several, jax's answers, and a rank 0 that is not on the head."""

from __future__ import annotations

from typing import Any

import pytest

from bringup.errors import ConfigurationError
from bringup.resolvers.base import Outcome
from bringup.resolvers.ompi import OpenMPI
from bringup.runtime.configuration.resolve import resolve_job

from ...lib.launches import ask, detected, launch, specs, vectors

RANK = {
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1,10.108.0.1:34911",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
}


def address(uri: str) -> str | None:
    return ask(OpenMPI(), RANK | {"OMPI_MCA_orte_hnp_uri": uri}).coordinator_address


@pytest.mark.parametrize("case", [case for case in vectors("jax_clusters") if case["cluster"] == "ompi"])
def test_as_jax(case: dict[str, Any]) -> None:
    spec = resolve_job(environ=case["env"])
    assert (spec.source, spec.coordinator_address) == ("ompi", case["coordinator_address"])
    assert (spec.num_clients, spec.client_id) == (case["num_processes"], case["process_id"])
    assert spec.local_client_id == case["local_process_id"]


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("1531576320.0;tcp://10.96.0.1,10.148.0.1,10.108.0.1:34911", "10.96.0.1:62624"),
        (
            "1314521088.0;tcp6://[fe80::b9b:ac5d:9cf0:b858,2620:10d:c083:150e::3000:2]:43370",
            "[fe80::b9b:ac5d:9cf0:b858]:62880",
        ),
        ("4096.0;tcp://1.2.3.4:5", "1.2.3.4:61441"),
        ("4095.0;tcp://1.2.3.4:5", "1.2.3.4:61440"),
        ("0.0;tcp://h:1", "h:61440"),
        ("1531576320.0;usock;tcp://10.9.9.9:1", "10.9.9.9:62624"),
        ("1000734720.0;tcp://192.0.2.2:48093;tcp6://[fd00::2]:58727", "192.0.2.2:64096"),
    ],
)
def test_the_address_of_mpirun(uri: str, expected: str) -> None:
    assert address(uri) == expected


@pytest.mark.parametrize("uri", ["", "x", "1.0;usock", ";tcp://1.2.3.4:5"])
def test_no_address_of_mpirun(uri: str) -> None:
    with pytest.raises(ConfigurationError, match=r"OMPI_MCA_orte_hnp_uri.*by mpirun"):
        address(uri)


@pytest.mark.parametrize(
    ("name", "host", "local"),
    [
        ("ompi", "127.0.0.1", [4]),
        ("ompi5", "127.0.0.1", [4]),
        ("ompi_mh", "10.77.0.1", [2, 2, 1]),
        ("ompi5_mh", "n1", [2, 2, 1]),
    ],
)
def test_real_launches(name: str, host: str, local: list[int]) -> None:
    found = specs(name)
    (coordinator,) = {spec.coordinator_address for spec in found}
    assert coordinator is not None
    assert coordinator.startswith(f"{host}:")
    assert [(spec.source, spec.num_clients, spec.client_id) for spec in found] == [
        ("ompi", len(found), rank) for rank in range(len(found))
    ]
    at = 0
    for size in local:
        here, at = found[at : at + size], at + size
        assert {spec.num_local_clients for spec in here} == {size}
        # Open MPI 5 may bind ranks to cores in another order than that of their numbers.
        assert sorted(spec.local_client_id or 0 for spec in here) == list(range(size))


def test_a_rank_0_away_from_mpirun_is_refused() -> None:
    first = launch("ompi_mh")[0]
    with pytest.raises(ConfigurationError, match=r"rank 0 runs on n1.*mpirun only, 10\.77\.0\.1.*'mpi4py'"):
        ask(OpenMPI(), first | {"OMPI_MCA_orte_local_daemon_uri": "1109262336.1;tcp://10.77.0.2:4"})
    with pytest.raises(ConfigurationError, match=r"rank 0 runs on n2.*mpirun only, n1"):
        ask(OpenMPI(), launch("ompi5_mh")[0] | {"PMIX_HOSTNAME": "n2"})
    long = {"PMIX_NAMESPACE": "prterun-gpu-07.lab-25216@1", "PMIX_HOSTNAME": "GPU-07"}
    host = ask(OpenMPI(), launch("ompi5_mh")[0] | long).coordinator_address
    assert host is not None
    assert host.startswith("gpu-07.lab:")


def test_jobs_of_one_mpirun_do_not_collide() -> None:
    first = launch("ompi5_mh")[0]
    second = first | {"PMIX_NAMESPACE": first["PMIX_NAMESPACE"].replace("@1", "@2")}
    assert ask(OpenMPI(), first).coordinator_address != ask(OpenMPI(), second).coordinator_address


@pytest.mark.parametrize("removed", ["OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"])
def test_a_rank_that_lacks_a_variable(removed: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{removed} is not set, and resolver 'ompi'"):
        resolve_job(environ={name: value for name, value in RANK.items() if name != removed})


def test_a_rank_that_knows_no_head() -> None:
    rest = {name: value for name, value in RANK.items() if name != "OMPI_MCA_orte_hnp_uri"}
    for namespace in ({}, {"PMIX_NAMESPACE": "1109262337"}):
        with pytest.raises(ConfigurationError, match=r"OMPI_MCA_orte_hnp_uri is not set.*PMIX_NAMESPACE=.*'ompi'"):
            resolve_job(environ=rest | namespace)


def test_prterun_without_open_mpi_is_refused() -> None:
    environment = {"PRTE_LAUNCHED": "1", "PMIX_RANK": "1", "PMIX_NAMESPACE": "prterun-vm-1912@1"}
    assert detected(OpenMPI(), environment).outcome is Outcome.PARTIAL
    with pytest.raises(ConfigurationError, match="OMPI_COMM_WORLD_SIZE is not set"):
        resolve_job(environ=environment)


def test_mpirun_in_an_allocation_of_slurm_is_the_inner_one() -> None:
    step = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_STEP_NODELIST": "n[1-4]", "SLURM_PROCID": "1"}
    assert resolve_job(environ=RANK | step).coordinator_address == "10.96.0.1:62624"
    assert [spec.source for spec in specs("pmix")] == ["slurm"] * 4, "srun is a PMIx launcher, too"
