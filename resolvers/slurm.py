"""Slurm: the tasks of a job step that `srun` started are the clients."""

from __future__ import annotations

from collections.abc import Mapping

from .base import ClusterJob, Detection
from .host_lists import expand_hosts, expand_tasks
from .ports import coordinator_port, derived_port, origin
from .slurm_commands import SlurmCommands
from .variables import Variables, is_set, shown

_REMEDY = (
    "start the clients by srun, which sets it for every task, or give the job by BRINGUP_JOBS and BRINGUP_CLIENT_ID"
)

_OF_A_STEP = (
    "SLURM_STEP_ID",
    "SLURM_STEPID",
    "SLURM_STEP_NODELIST",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_NUM_NODES",
    "SLURM_STEP_TASKS_PER_NODE",
)

# The steps of Slurm itself have the highest ids: the shell of `salloc` (4294967290), the batch script, and others.
_OWN_STEPS = 0xFFFFFFF0

# Steps of a job run at once, on the same hosts: their ports must differ. Odd, so that 4096 steps of one job get
# different ports; and far from 1, as the jobs that run beside this one have the next job ids.
_STEP_STRIDE = 1543


class Slurm:
    """See `ClusterResolver`."""

    name = "slurm"

    def detect(self, environment: Mapping[str, str]) -> Detection:
        """See `ClusterResolver.detect`."""
        tasks = shown(environment, "SLURM_NTASKS") or shown(environment, "SLURM_STEP_NUM_TASKS", "SLURM_NPROCS")
        if _is_of_slurm_itself(environment):
            return Detection.alone(f"{shown(environment, 'SLURM_STEP_ID')} is a shell, outside any step of srun")
        if any(is_set(environment, name) for name in _OF_A_STEP):
            if _number_of_tasks(environment) == "1":
                return Detection.alone(f"{tasks} is one task")
            return Detection.present(f"{shown(environment, 'SLURM_STEP_ID', 'SLURM_PROCID') or tasks} is a job step")
        job = shown(environment, "SLURM_JOB_ID") or shown(environment, "SLURM_JOBID")
        if is_set(environment, "SLURM_PROCID"):
            if (environment["SLURM_PROCID"], environment.get("SLURM_NODEID")) == ("0", "0"):
                return Detection.alone(f"{job} is a batch script, outside any step: srun starts tasks")
            return Detection.present(f"{shown(environment, 'SLURM_PROCID')} is a task")
        if not job:
            return Detection.absent("SLURM_JOB_ID is not set")
        if not tasks:
            return Detection.absent("SLURM_NTASKS is not set")
        if _number_of_tasks(environment) == "1":
            return Detection.alone(f"{tasks} is one task")
        return Detection.partial(f"{tasks} are several tasks, and SLURM_PROCID, which of them this is, is not set")

    async def resolve(self, environment: Mapping[str, str]) -> ClusterJob:
        """See `ClusterResolver.resolve`."""
        step = _Step(Variables(environment, self.name, _REMEDY))
        commands = SlurmCommands(environment)
        first = step.first_host() or await step.ask_first_host(commands)
        return step.job(await commands.reachable(first))


class _Step:
    """The variables of one task of a step, parsed."""

    def __init__(self, variables: Variables) -> None:
        self._variables = variables
        count = variables.first("SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "SLURM_NPROCS") or "SLURM_NTASKS"
        job = variables.first("SLURM_JOB_ID", "SLURM_JOBID") or "SLURM_JOB_ID"
        step = variables.first("SLURM_STEP_ID", "SLURM_STEPID")
        self._origins = {"num_clients": count, "client_id": "SLURM_PROCID", "local_client_id": "SLURM_LOCALID"}
        self._job_id = variables.integer(job, most=1 << 62)
        self._step_id = 0 if step is None else variables.integer(step, most=1 << 32)
        self._count = variables.integer(count, least=1)
        self._task = variables.rank("SLURM_PROCID", self._count, count)
        self._local_id = variables.integer("SLURM_LOCALID")
        self._hosts = self._expanded("SLURM_STEP_NODELIST")
        self._own = variables.get("SLURMD_NODENAME")

    def first_host(self) -> str | None:
        """Return the host of task 0; `None` where these variables do not say it.

        Raises:
            ConfigurationError: this is task 0, and elsewhere than the other tasks will look for it.
        """
        runs_here = self._task == 0 or "0" in (self._variables.get("SLURM_GTIDS") or "").split(",")
        if (self._variables.get("SLURM_DISTRIBUTION") or "").startswith("arbitrary"):
            return self._own if runs_here else None
        first = self._first_of_het_groups() if self._variables.get("SLURM_HET_SIZE") else self._hosts[0]
        if self._task == 0 and self._own not in (None, first):
            raise self._variables.refusal(
                f"task 0 runs on {self._own} (SLURMD_NODENAME), and the other tasks will look for it on {first}, the "
                "first host of the step"
            )
        return first

    async def ask_first_host(self, commands: SlurmCommands) -> str:
        """Return the host of task 0 after Slurm's own layout of the step.

        Raises:
            ConfigurationError: Slurm does not tell.
        """
        host, failure = await commands.host_of_task_0(self._job_id, self._step_id)
        host = host or await commands.first_of_host_file(self._hosts, self._count, self._task, self._own)
        if host is None:
            raise self._variables.wrong(
                "SLURM_DISTRIBUTION", f"leaves open on which host task 0 runs, and Slurm did not tell: {failure}"
            )
        return host

    def job(self, first_host: str) -> ClusterJob:
        """Return the job, with client 0 on `first_host`."""
        port = coordinator_port(self._variables, derived_port(self._job_id + self._step_id * _STEP_STRIDE))
        address = f"[{first_host}]:{port}" if ":" in first_host else f"{first_host}:{port}"
        return ClusterJob(
            num_clients=self._count,
            client_id=self._task,
            coordinator_address=address,
            local_client_id=self._local_id,
            num_local_clients=None if _devices_are_divided(self._variables) else self._tasks_here(),
            origins={
                **self._origins,
                "coordinator_address": origin("SLURM_STEP_NODELIST", self._variables, "SLURM_JOB_ID"),
            },
        )

    def _expanded(self, name: str) -> list[str]:
        text = self._variables.text(name)
        try:
            hosts = expand_hosts(text)
        except ValueError as error:
            raise self._variables.wrong(name, f"is not a list of hosts: {error}") from None
        if not hosts:
            raise self._variables.wrong(name, "names no host")
        return hosts

    def _first_of_het_groups(self) -> str:
        """Task 0 is of the first group, whose hosts need not be the first: Slurm sorts those of all groups together."""
        here = set(self._hosts)
        size = self._variables.integer("SLURM_HET_SIZE", least=1, most=1 << 16)
        for group in range(size):
            name = self._variables.first(
                f"SLURM_JOB_NODELIST_HET_GROUP_{group}", f"SLURM_JOB_NODELIST_PACK_GROUP_{group}"
            )
            among = [host for host in self._expanded(name) if host in here] if name else []
            if among:
                return among[0]
        return self._hosts[0]

    def _tasks_here(self) -> int | None:
        """Return the number of tasks of this host; `None` where it is not told."""
        if (ids := self._variables.get("SLURM_GTIDS")) is not None:
            found = len(ids.split(","))
        elif (tasks := self._variables.get("SLURM_STEP_TASKS_PER_NODE")) is None:
            return None
        else:
            try:
                found = expand_tasks(tasks)[self._variables.integer("SLURM_NODEID")]
            except (ValueError, IndexError):
                return None
        return found if found > self._local_id else None


def _number_of_tasks(environment: Mapping[str, str]) -> str:
    return environment.get("SLURM_NTASKS", "").strip() or environment.get("SLURM_STEP_NUM_TASKS", "").strip()


def _is_of_slurm_itself(environment: Mapping[str, str]) -> bool:
    step = environment.get("SLURM_STEP_ID", "").strip()
    return step.isascii() and step.isdigit() and len(step) <= 10 and int(step) >= _OWN_STEPS


def _devices_are_divided(variables: Variables) -> bool:
    """Whether Slurm gave each task of a host GPUs of its own, which are not to be divided once more."""
    if variables.first("SLURM_GPUS_PER_TASK", "SLURMD_TRES_BIND", "SLURM_TRES_BIND") is not None:
        return True
    visible, here = variables.get("CUDA_VISIBLE_DEVICES"), variables.get("SLURM_GPUS_ON_NODE")
    return visible is not None and here is not None and here.isdigit() and len(visible.split(",")) < int(here)
