"""Jobs under real launchers, with nothing passed: srun, mpirun, mpiexec; skipped where they are not installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

# Seconds for a job of a few processes, on a busy machine.
PATIENCE = 90

PROGRAM = """
import json, os
import bringup.sync

with bringup.sync.initialize("SIM") as system:
    total = int(system.all_reduce([1])[0])
    found = {"id": system.client_id, "of": system.num_clients, "total": total, "job": system.job_id}
# One line at once, as processes share the output of their launcher.
os.write(1, json.dumps(found).encode() + b"\\n")
"""


def launch(*command: str, **environ: str) -> list[dict[str, object]]:
    """Run the program under a launcher, and return what each of its processes printed."""
    done = subprocess.run(
        [*command, sys.executable, "-c", PROGRAM],
        env=clean_environment() | environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def clean_environment() -> dict[str, str]:
    """Return this environment without the job that the tests may run in."""
    families = ("BRINGUP_", "SLURM", "OMPI_", "PMI", "DTENSOR_", "KERAS_", "JAX_")
    return {name: value for name, value in os.environ.items() if not name.startswith(families)}


def check(found: Sequence[dict[str, object]], size: int) -> None:
    """Check that the processes came up as one job."""
    assert sorted(int(str(one["id"])) for one in found) == list(range(size))
    assert {(one["of"], one["total"]) for one in found} == {(size, size)}
    assert len({one["job"] for one in found}) == 1


def installed(*names: str) -> str:
    """Return the path of the first program that is there, or skip the test."""
    for name in names:
        if path := shutil.which(name):
            return path
    pytest.skip(f"{' or '.join(names)} is not installed here")


def test_mpich() -> None:
    check(launch(installed("mpiexec.hydra", "mpiexec.mpich"), "-n", "3"), 3)


def test_open_mpi() -> None:
    mpirun = installed("mpirun.openmpi")
    # As root, on fewer cores than ranks; and away from networks that this machine may or may not have.
    check(launch(mpirun, "--allow-run-as-root", "--oversubscribe", "--mca", "oob_tcp_if_include", "lo", "-n", "3"), 3)


def test_one_rank_is_local_mode() -> None:
    check(launch(installed("mpiexec.hydra", "mpiexec.mpich"), "-n", "1"), 1)


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "security.md"

Srun = Callable[..., list[dict[str, object]]]

CONFIGURATION = """
ClusterName=lab
SlurmctldHost=localhost
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
MpiDefault=none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
TmpFS={folder}/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SwitchType=switch/none
MailProg=/bin/true
ReturnToService=2
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0
KillWait=2
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4 RealMemory=500 State=UNKNOWN
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[3]} CPUs=4 RealMemory=500 State=UNKNOWN
PartitionName=debug Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Run a real Slurm of two nodes on this machine, and return the variables that lead its commands to it."""
    for program in ("slurmctld", "slurmd", "srun"):
        installed(program)
    if os.geteuid() != 0:
        pytest.skip("a Slurm without munge needs root")
    folder = tmp_path_factory.mktemp("slurm")
    for name in ("state", "n1", "n2"):
        (folder / name).mkdir()
    configuration = folder / "slurm.conf"
    configuration.write_text(CONFIGURATION.format(folder=folder, ports=free_ports(4)))
    environ = clean_environment() | {"SLURM_CONF": str(configuration)}
    commands = [["slurmctld", "-c", "-D"], ["slurmd", "-N", "n1", "-D"], ["slurmd", "-N", "n2", "-D"]]
    log = (folder / "log").open("wb")
    daemons = [subprocess.Popen(command, env=environ, stdout=log, stderr=log) for command in commands]
    try:
        # Blocks until both nodes have registered.
        ready = ["srun", "-N2", "-n2", "true"]
        started = subprocess.run(ready, env=environ, capture_output=True, timeout=PATIENCE, check=False)
        if started.returncode != 0:
            pytest.skip(f"this Slurm does not run without munge: {started.stderr!r} {(folder / 'log').read_text()}")
        yield {"SLURM_CONF": str(configuration)}
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            daemon.wait(PATIENCE)
        log.close()


def free_ports(count: int) -> list[int]:
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in servers]
    for server in servers:
        server.close()
    return ports


def test_slurm(slurm: dict[str, str]) -> None:
    check(launch("srun", "-N2", "-n3", **slurm), 3)


def test_slurm_with_task_0_on_the_last_node(slurm: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("n2\nn1\nn1\n")
    check(launch("srun", "-m", "arbitrary", "-n3", **slurm, SLURM_HOSTFILE=str(tmp_path / "hosts")), 3)


def test_two_steps_at_once_in_one_allocation(slurm: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    step = f"srun -n2 --exact {sys.executable} {tmp_path}/program.py"
    script = f"{step} > {tmp_path}/first & {step} > {tmp_path}/second & wait"
    subprocess.run(
        ["salloc", "-N2", "-n4", "bash", "-c", script],
        env=clean_environment() | slurm,
        capture_output=True,
        timeout=PATIENCE,
        check=True,
    )
    jobs = [[json.loads(line) for line in (tmp_path / name).read_text().splitlines()] for name in ("first", "second")]
    for job in jobs:
        check(job, 2)
    assert jobs[0][0]["job"] != jobs[1][0]["job"]


TELLING = f"""
import logging

logging.basicConfig(level=logging.INFO)
{PROGRAM}
path = os.environ["BRINGUP_TOKEN_FILE"]
os.write(1, f"{{path}} {{os.stat(path).st_mode & 0o777}}\\n".encode())
"""


def test_the_batch_script_of_the_documentation_hands_a_token_over(slurm: dict[str, str], tmp_path: Path) -> None:
    (script,) = re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL)
    # The nodes of this Slurm share one memory, so that `sbcast` to a second one would find its file there.
    (tmp_path / "job.sh").write_text(script)
    (tmp_path / "train.py").write_text(TELLING)
    done = subprocess.run(
        ["salloc", "-N1", "-n2", "bash", "job.sh"],
        env=clean_environment() | slurm | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told, *lines = done.stdout.splitlines()
    check([json.loads(line) for line in lines if line.startswith("{")], 2)
    ((path, mode),) = {tuple(line.split()) for line in lines if line.startswith("/")}
    assert int(mode) == 0o600
    assert not Path(path).exists(), "the script removes it"
    fingerprint = told.rsplit(maxsplit=1)[1]
    assert done.stderr.count(f"by <Token {fingerprint}> (BRINGUP_TOKEN_FILE={path!r})") == 2
