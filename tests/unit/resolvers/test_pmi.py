"""MPICH and Intel MPI: client 0's address over the launcher's wire, and a launcher that misbehaves."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bringup.errors import ConfigurationError
from bringup.resolvers import own_address
from bringup.resolvers.base import ClusterJob, Outcome
from bringup.resolvers.pmi import PMI
from bringup.runtime.configuration.resolve import resolve_job

from ...lib.launches import ask, detected, launch, specs
from ...lib.pmi_launcher import PMILauncher

RANK = {"PMI_FD": "4999", "PMI_RANK": "1", "PMI_SIZE": "2"}


def ask_all(environments: list[dict[str, str]]) -> list[ClusterJob]:
    with ThreadPoolExecutor(len(environments)) as threads:
        return list(threads.map(lambda environment: ask(PMI(), environment), environments))


def local(environments: list[dict[str, str]]) -> list[dict[str, str]]:
    """Put all processes on one host."""
    size = str(len(environments))
    return [
        each | {"MPI_LOCALRANKID": each["PMI_RANK"], "MPI_LOCALNRANKS": size, "HYDI_CONTROL_FD": "7"}
        for each in environments
    ]


def test_all_ranks_hear_of_client_0() -> None:
    with PMILauncher(3) as launcher:
        first = ask_all(local(launcher.environments()))
        again = ask_all(local(launcher.environments()))
        assert all(theirs.getblocking() for theirs in launcher.theirs), "MPI expects a blocking socket"
    assert [(job.client_id, job.num_clients, job.local_client_id) for job in first] == [(0, 3, 0), (1, 3, 1), (2, 3, 2)]
    (address,) = {job.coordinator_address for job in first}
    assert address is not None
    assert address.startswith("127.0.0.1:"), "all on one host"
    assert {job.num_local_clients for job in again} == {3}
    assert [line for line in launcher.heard if "finalize" in line] == [], "MPI may still begin"


PROGRAM = """
import asyncio, os, sys, types
from bringup.resolvers.pmi import PMI

asyncio.run(PMI().resolve(os.environ))
asyncio.run(PMI().resolve(os.environ))
match sys.argv[1]:
    case "fork":
        if (child := os.fork()) == 0:
            sys.exit()
        os.waitpid(child, 0)
        sys.stdout.write("the child has ended")
        sys.stdout.flush()
        sys.stdin.read()
    case "mpi":
        sys.modules["mpi4py.MPI"] = types.SimpleNamespace(Is_initialized=lambda: True)
"""


def test_the_end_of_a_process_is_the_end_of_its_wire() -> None:
    for how, goodbyes in (("plain", 1), ("mpi", 0)):
        with PMILauncher(1) as launcher:
            (environment,) = local(launcher.environments())
            run_program(launcher, environment, how).communicate(timeout=60)
        assert launcher.heard.count("cmd=finalize") == goodbyes, "MPI says it by itself"
        assert launcher.heard.count("cmd=barrier_in") == 2


def test_a_forked_child_does_not_end_the_wire() -> None:
    with PMILauncher(1) as launcher:
        (environment,) = local(launcher.environments())
        program = run_program(launcher, environment, "fork")
        assert program.stdout is not None
        assert program.stdout.read(1) == b"t"
        assert "cmd=finalize" not in launcher.heard
        program.communicate(timeout=60)
    assert launcher.heard.count("cmd=finalize") == 1


def run_program(launcher: PMILauncher, environment: dict[str, str], how: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, how],
        env=os.environ | environment,
        pass_fds=[theirs.fileno() for theirs in launcher.theirs],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def test_ranks_of_several_hosts_hear_a_name_that_leads_there(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"n1": "10.0.0.1", "debian": "127.0.1.1"}

    def getaddrinfo(name: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        if name not in known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (known[name], 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(socket, "gethostname", lambda: "debian")
    for names, expected in (
        ({"MPIR_CVAR_CH3_INTERFACE_HOSTNAME": "n1"}, "n1"),
        ({"PMI_HOSTNAME": "n1", "MPIR_CVAR_CH3_INTERFACE_HOSTNAME": "debian"}, "n1"),
    ):
        with PMILauncher(2) as launcher:
            jobs = ask_all([each | names for each in launcher.environments()])
        (address,) = {job.coordinator_address for job in jobs}
        assert address is not None
        assert address.startswith(f"{expected}:")
    monkeypatch.setattr(own_address, "_AFAR", ((socket.AF_INET, "127.0.0.9"),))
    assert asyncio.run(own_address.own_host(["made-up"])) == "127.0.0.1", "the address from which it would send"


def test_a_port_that_is_taken_is_passed_over() -> None:
    with socket.create_server(("", 0)) as server:
        taken = server.getsockname()[1]
        assert own_address.free_port(taken) != taken
    with PMILauncher(1) as launcher:
        (job,) = ask_all([launcher.environments()[0] | {"BRINGUP_PORT": "1234", "MPI_LOCALNRANKS": "1"}])
    assert job.coordinator_address == "127.0.0.1:1234"


@pytest.mark.parametrize(
    ("reply", "part"),
    [
        ("hang up", "has hung up|does not lead to a launcher"),
        ("cmd=response_to_init rc=-1", "answered 'init pmi_version=1 pmi_subversion=1' with"),
        ("cmd=what", "answered 'init"),
        ("\x00\x01", "answered 'init"),
        ("x" * 20000, "no end of a line|answered 'init"),
    ],
)
def test_a_launcher_that_misbehaves(reply: str, part: str) -> None:
    answer: Callable[[str], str | None] = lambda line: reply  # noqa: E731
    with PMILauncher(1, answer) as launcher, pytest.raises(ConfigurationError, match=rf"PMI_FD=.*({part})"):
        ask(PMI(), RANK | {"PMI_FD": str(launcher.theirs[0].fileno())})


async def test_cancelling_the_wait_for_the_other_ranks_leaves_the_wire_open() -> None:
    with PMILauncher(2) as launcher:
        waiting = asyncio.create_task(PMI().resolve(launcher.environments()[1]))
        await asyncio.to_thread(launcher.barriers.acquire)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert launcher.theirs[1].fileno() >= 0
        os.fstat(launcher.theirs[1].fileno())


def test_a_descriptor_that_is_no_wire(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"PMI_FD='4999' is not open: has a program.*by mpiexec"):
        resolve_job(environ=RANK)
    with (tmp_path / "file").open("w") as file, pytest.raises(ConfigurationError, match="is no socket"):
        resolve_job(environ=RANK | {"PMI_FD": str(file.fileno())})


@pytest.mark.parametrize("removed", RANK)
def test_a_rank_that_lacks_a_variable(removed: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{removed} is not set, and resolver 'pmi'"):
        resolve_job(environ={name: value for name, value in RANK.items() if name != removed})


@pytest.mark.parametrize("name", ["mpich", "mpich2", "mpich5", "mpich_mh"])
def test_real_ranks_are_detected(name: str) -> None:
    for environment in launch(name):
        assert detected(PMI(), environment).outcome is Outcome.PRESENT
        step: Mapping[str, str] = launch("srun_n4")[0]
        assert detected(PMI(), {**step, **environment}).outcome is Outcome.PRESENT, "mpiexec in a step of srun"


def test_srun_as_the_launcher_of_pmi_is_slurm() -> None:
    for environment in launch("srun_N4_pmi2"):
        assert "SLURM_MPI_TYPE" in detected(PMI(), environment).ground
    assert [spec.source for spec in specs("srun_N4_pmi2")] == ["slurm"] * 8


def test_a_launcher_of_ports_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="PMI_SIZE is not set"):
        resolve_job(environ={"PMI_ID": "1", "PMI_PORT": "vm:41477", "HYDI_CONTROL_FD": "7"})
