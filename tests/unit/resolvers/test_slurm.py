"""Slurm: the tasks of real steps, of every distribution; what a task lacks; what is no task."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from bringup.errors import ConfigurationError
from bringup.resolvers.base import Outcome
from bringup.resolvers.slurm import Slurm
from bringup.runtime.configuration.resolve import resolve_job

from ...lib.launches import ask, detected, launch, specs, vectors

TASK = {
    "SLURM_JOB_ID": "100",
    "SLURM_STEP_NODELIST": "node[001-002]",
    "SLURM_NTASKS": "8",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
}


def address(**changed: str) -> str | None:
    return ask(Slurm(), TASK | changed).coordinator_address


@pytest.mark.parametrize("case", [case for case in vectors("jax_clusters") if case["cluster"] == "slurm"])
def test_as_jax(case: dict[str, Any]) -> None:
    spec = resolve_job(environ=case["env"])
    assert (spec.source, spec.jobs, spec.job_name) == ("slurm", None, "worker")
    assert spec.coordinator_address == case["coordinator_address"]
    assert (spec.num_clients, spec.client_id) == (case["num_processes"], case["process_id"])
    assert spec.local_client_id == case["local_process_id"]


@pytest.mark.parametrize(
    ("job", "port"),
    [("0", 61440), ("1", 61441), ("4095", 65535), ("4096", 61440), ("4097", 61441), ("1234567", 63111)],
)
def test_the_port_is_jaxs_of_the_job_id(job: str, port: int) -> None:
    assert address(SLURM_JOB_ID=job) == f"node001:{port}"


@pytest.mark.parametrize(
    ("nodes", "host"),
    [
        ("node001,host2", "node001"),
        ("node[001-0015],host2", "node001"),
        ("node[001,007-015],host2", "node001"),
        ("node[1-2,4]", "node1"),
        ("host2,node[001-003]", "host2"),
        ("n1-gpu[01-02]", "n1-gpu01"),
        ("a[1-2],b[3-4]", "a1"),
        ("rack[1-2]node[3-4]", "rack1node3"),
        ("node[001]", "node001"),
        ("node[001-004].cluster.local", "node001.cluster.local"),
    ],
)
def test_the_first_host(nodes: str, host: str) -> None:
    assert address(SLURM_STEP_NODELIST=nodes) == f"{host}:61540"


def test_the_port_may_be_given() -> None:
    assert address(JAX_COORDINATOR_PORT="1234") == "node001:1234"
    assert address(JAX_COORDINATOR_PORT="1234", BRINGUP_PORT="77") == "node001:77"
    for wrong in ("0", "65536", "x"):
        with pytest.raises(ConfigurationError, match="BRINGUP_PORT="):
            address(BRINGUP_PORT=wrong)


def test_steps_of_a_job_do_not_collide() -> None:
    steps = [*range(100), 1000, 2047, 2048, 4095]
    assert len({address(SLURM_STEP_ID=str(step)) for step in steps}) == len(steps)
    neighbours = {address(SLURM_JOB_ID=str(job), SLURM_STEP_ID=str(step)) for job in range(20) for step in range(10)}
    assert len(neighbours) == 200, "nor do those of jobs that run at the same time"
    assert address(SLURM_STEP_ID="0") == address()


@pytest.mark.parametrize(
    ("name", "host", "sizes"),
    [
        ("srun_n4", "n1", [4]),
        ("srun_N2_n4", "n1", [3, 1]),
        ("srun_N4_n4_pt", "n1", [1, 1, 1, 1]),
        ("srun_N4_pmi2", "n1", [4, 2, 1, 1]),
        ("pmix", "n1", [3, 1]),
        ("cyclic", "n1", [3, 1]),
        ("nodes13", "n1", [1, 1, 1]),
        ("ns_srun", "n1", [1, 1]),
        ("sbatch_step0", "n1", [2, 2, 2]),
        ("sbatch_step1", "n2", [2]),
        ("gres_pertask", "n1", [2, 2]),
        ("het_all", "n3", [1, 2, 1]),
        ("het_second", "n1", [2, 1]),
    ],
)
def test_real_steps(name: str, host: str, sizes: list[int]) -> None:
    found = specs(name)
    (coordinator,) = {spec.coordinator_address for spec in found}
    assert coordinator is not None
    assert coordinator.startswith(f"{host}:")
    assert [spec.client_id for spec in found] == list(range(len(found)))
    assert {(spec.source, spec.num_clients) for spec in found} == {("slurm", len(found))}
    hosts: dict[str, list[tuple[int | None, int | None]]] = {}
    for spec, environment in zip(found, launch(name), strict=True):
        at = hosts.setdefault(environment["SLURMD_NODENAME"], [])
        at.append((spec.local_client_id, spec.num_local_clients))
    assert sorted(map(len, hosts.values())) == sorted(sizes)
    for local in hosts.values():
        assert local == [(number, len(local)) for number in range(len(local))]


def test_tasks_with_gpus_of_their_own_do_not_divide_them() -> None:
    assert {spec.num_local_clients for spec in specs("gres_gpt")} == {None}
    shared = launch("gres_pertask")[0]
    assert ask(Slurm(), shared).num_local_clients == 2, "every task sees all four"
    assert ask(Slurm(), shared | {"CUDA_VISIBLE_DEVICES": "2"}).num_local_clients is None
    assert ask(Slurm(), shared | {"SLURM_GPUS_PER_TASK": "2"}).num_local_clients is None


def test_without_the_ids_of_this_host_their_number_is_that_of_its_node() -> None:
    environment = launch("srun_N2_n4")[3]
    del environment["SLURM_GTIDS"]
    assert ask(Slurm(), environment).num_local_clients == 1
    assert ask(Slurm(), environment | {"SLURM_NODEID": "7"}).num_local_clients is None
    assert ask(Slurm(), TASK).num_local_clients is None


# A distribution that leaves the host of task 0 open


def test_an_arbitrary_distribution_on_the_host_of_task_0() -> None:
    first, second = launch("arbitrary")[:2]
    assert ask(Slurm(), first).coordinator_address == "n3:61452"
    with pytest.raises(ConfigurationError, match=r"SLURM_DISTRIBUTION='arbitrary' leaves open.*task 0.*sattach"):
        ask(Slurm(), second)


COMMANDS = {
    "sattach": "printf '%s\\n' 'Job step layout:' '\t5 tasks, 3 nodes (n[1,3-4])' ''"
    " '\tNode 0 (n1), 3 task(s): 1 2 4 ' '\tNode 1 (n3), 1 task(s): 0 ' '\tNode 2 (n4), 1 task(s): 3 '",
    "scontrol": "echo NodeName=$3 Arch=x86_64 NodeAddr=127.0.0.1 NodeHostName=localhost Port=17001",
}


@pytest.fixture
def slurm(tmp_path: Path) -> dict[str, str]:
    """Return the variables of a cluster with commands that say what Slurm's say."""
    for command, script in COMMANDS.items():
        (tmp_path / command).write_text(f"#!/bin/sh\necho {command} $* >> {tmp_path}/calls\n{script}\n")
        (tmp_path / command).chmod(0o755)
    (tmp_path / "slurm.conf").write_text("ClusterName=lab\n")
    return {"SLURM_CONF": str(tmp_path / "slurm.conf"), "PATH": f"{tmp_path}:/usr/bin:/bin"}


@pytest.fixture
def no_name_resolves(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.usefixtures("no_name_resolves")
def test_slurm_knows_the_host_of_task_0_and_the_address_of_a_node(slurm: dict[str, str], tmp_path: Path) -> None:
    for environment in launch("arbitrary"):
        assert ask(Slurm(), environment | slurm).coordinator_address == "127.0.0.1:61452"
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls.count("sattach --layout 12.0") == 4, "the host of task 0 knows by itself"
    assert calls.count("scontrol show node n3 --oneliner") == 5


def test_a_name_that_resolves_is_kept(slurm: dict[str, str], tmp_path: Path) -> None:
    assert ask(Slurm(), TASK | slurm | {"SLURM_STEP_NODELIST": "localhost"}).coordinator_address == "localhost:61540"
    assert not (tmp_path / "calls").exists()


@pytest.mark.usefixtures("no_name_resolves")
@pytest.mark.parametrize("script", ["exit 1", "echo garbage", "printf '\\377'"])
def test_commands_that_fail(slurm: dict[str, str], tmp_path: Path, script: str) -> None:
    for command in COMMANDS:
        (tmp_path / command).write_text(f"#!/bin/sh\n{script}\n")
    first, second = launch("arbitrary")[:2]
    assert ask(Slurm(), first | slurm).coordinator_address == "n3:61452"
    with pytest.raises(ConfigurationError, match=r"SLURM_DISTRIBUTION.*sattach"):
        ask(Slurm(), second | slurm)


def test_the_host_file_tells_the_host_of_task_0_where_it_agrees(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    environment = launch("arbitrary")[1] | {"SLURM_HOSTFILE": str(file)}
    file.write_text("n3\nn1\nn1\nn4\nn1\n")
    assert ask(Slurm(), environment).coordinator_address == "n3:61452"
    for changed in ("n3\nn4\nn1\nn1\nn1\n", "n3\nn1\n", "n9\nn1\nn1\nn4\nn1\n", "\0"):
        file.write_text(changed)
        with pytest.raises(ConfigurationError, match="SLURM_DISTRIBUTION"):
            ask(Slurm(), environment)


def test_task_0_is_not_looked_for_elsewhere_in_vain() -> None:
    environment = launch("cyclic")[0] | {"SLURMD_NODENAME": "n2"}
    with pytest.raises(ConfigurationError, match=r"task 0 runs on n2 .*will look for it on n1"):
        ask(Slurm(), environment)


# Never silently alone


@pytest.mark.parametrize("removed", TASK)
def test_a_task_that_lacks_a_variable_is_an_error_that_names_it(removed: str) -> None:
    rest = {name: value for name, value in TASK.items() if name != removed}
    for environment in (rest, rest | {removed: ""}):
        with pytest.raises(ConfigurationError, match=f"{removed} is (not set|empty), and resolver 'slurm'.*by srun"):
            resolve_job(environ=environment)
        with pytest.raises(ConfigurationError, match=f"{removed} is (not set|empty)"):
            resolve_job(environ=environment, resolver="slurm")
        assert resolve_job(environ=environment, resolver="none").is_local


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"SLURM_PROCID": "8"}, "SLURM_PROCID='8' is not below SLURM_NTASKS=8"),
        ({"SLURM_PROCID": "-1"}, "SLURM_PROCID='-1' is not in 0"),
        ({"SLURM_NTASKS": "0"}, "SLURM_NTASKS='0'"),
        ({"SLURM_NTASKS": "many"}, "SLURM_NTASKS='many' is not a whole number"),
        ({"SLURM_JOB_ID": "12_3"}, "SLURM_JOB_ID='12_3'"),
        ({"SLURM_STEP_NODELIST": "n[3-1]"}, "SLURM_STEP_NODELIST='n[3-1]' is not a list of hosts"),
        ({"SLURM_STEP_NODELIST": ","}, "SLURM_STEP_NODELIST=','"),
        ({"SLURM_STEP_ID": "x"}, "SLURM_STEP_ID='x'"),
        ({"SLURM_LOCALID": "x"}, "SLURM_LOCALID='x'"),
    ],
)
def test_what_a_task_cannot_have(changed: dict[str, str], part: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve_job(environ=TASK | changed)
    assert part in str(caught.value)


def test_an_allocation_without_a_task_is_refused() -> None:
    for environment in ({"SLURM_JOB_ID": "5", "SLURM_NTASKS": "4"}, *launch("salloc_shell")):
        assert detected(Slurm(), environment).outcome is Outcome.PARTIAL
        with pytest.raises(ConfigurationError, match=r"SLURM_PROCID is not set.*start the clients by srun.*'none'"):
            resolve_job(environ=environment)


@pytest.mark.parametrize(
    ("name", "ground"),
    [("sbatch_script", "batch script"), ("het_script", "batch script"), ("one_task", "SLURM_NTASKS='1' is one task")],
)
def test_one_task_and_a_batch_script_are_local_mode(name: str, ground: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "bringup")
    (spec,) = specs(name)
    assert (spec.source, spec.is_local, spec.job_name) == ("local mode", True, "localhost")
    assert ground in caplog.text


def test_the_shell_of_an_allocation_is_local_mode() -> None:
    shell = TASK | {"SLURM_STEP_ID": "4294967290", "SLURM_PROCID": "0"}
    assert resolve_job(environ=shell).is_local


@pytest.mark.parametrize("environment", [{}, {"SLURM_NTASKS": "4"}, {"SLURM_CONF": "/x"}, {"SLURM_JOB_ID": "5"}])
def test_what_is_no_allocation(environment: dict[str, str]) -> None:
    assert detected(Slurm(), environment).outcome is Outcome.ABSENT
