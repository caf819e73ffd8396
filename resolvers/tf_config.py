"""TF_CONFIG: the chief and the workers of a TensorFlow cluster are the clients, an evaluator is alone. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..transport.addresses import Address
from .base import ClusterJob, Detection
from .ports import given_port, origin
from .variables import PROCESSES_MAX, Variables, is_set

_REMEDY = 'write {"cluster": {"worker": ["host0:port", ...]}, "task": {"type": "worker", "index": 0}}'

# These train together, in this order, as in TensorFlow's collective strategies. A "master" is a chief of old.
_TOGETHER = ("chief", "master", "worker")


class TFConfig:
    """See `ClusterResolver`."""

    name = "tf_config"

    def detect(self, environment: Mapping[str, str]) -> Detection:
        """See `ClusterResolver.detect`."""
        if not is_set(environment, "TF_CONFIG"):
            return Detection.absent("TF_CONFIG is not set")
        try:
            cluster = _Cluster.parse(environment["TF_CONFIG"])
        except ValueError:
            return Detection.present("TF_CONFIG is set")
        if not cluster.jobs:
            return Detection.absent("TF_CONFIG names no cluster")
        if cluster.task_type == "evaluator":
            return Detection.alone("TF_CONFIG makes this process the evaluator, which the others do not wait for")
        if len(cluster.addresses()) == 1:
            return Detection.alone("TF_CONFIG names one task")
        return Detection.present(f"TF_CONFIG names {len(cluster.addresses())} tasks")

    async def resolve(self, environment: Mapping[str, str]) -> ClusterJob:
        """See `ClusterResolver.resolve`."""
        variables = Variables(environment, self.name, _REMEDY)
        try:
            cluster = _Cluster.parse(variables.text("TF_CONFIG"))
            client_id, addresses = cluster.client_id(), cluster.addresses()
        except ValueError as error:
            raise variables.wrong("TF_CONFIG", str(error)) from None
        port, origins = given_port(variables), dict.fromkeys(("jobs", "num_clients", "client_id"), "TF_CONFIG")
        if port is None:
            jobs, coordinator = tuple(addresses), None
        else:
            # TensorFlow's own server listens at its address.
            jobs, coordinator = None, str(Address(Address.parse(addresses[0]).host, port))
            origins["coordinator_address"] = origin("TF_CONFIG", variables)
        return ClusterJob(
            num_clients=len(addresses),
            client_id=client_id,
            jobs=jobs,
            coordinator_address=coordinator,
            job_name=None if cluster.task_type in (None, *_TOGETHER) else cluster.task_type,
            origins=origins,
        )


@dataclass(frozen=True, slots=True)
class _Cluster:
    """The cluster and this task: the tasks' addresses by the names of their jobs."""

    jobs: Mapping[str, list[str]]
    task_type: str | None
    task_index: int

    @classmethod
    def parse(cls, text: str) -> _Cluster:
        """Parse the value of TF_CONFIG.

        Raises:
            ValueError: it is malformed; completes the sentence "TF_CONFIG=...".
        """
        try:
            config = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"is not JSON: {error}") from None
        if not isinstance(config, dict):
            raise ValueError("is not a JSON object")
        cluster, task = config.get("cluster") or {}, config.get("task") or {}
        if not isinstance(cluster, dict) or not isinstance(task, dict):
            raise ValueError("has a cluster or a task that is not a JSON object")
        jobs = {str(name): _addresses(name, tasks) for name, tasks in cluster.items()}
        kind = task.get("type")
        return cls(jobs, None if kind is None else str(kind), _index(task.get("index", 0)))

    def addresses(self) -> list[str]:
        """Return the addresses of the clients, in their order."""
        return [address for name in self._names() for address in self.jobs.get(name, [])]

    def client_id(self) -> int:
        """Return the id of this task among the clients.

        Raises:
            ValueError: it is none of them.
        """
        if self.task_type is None:
            if len(self.addresses()) == 1:
                return 0
            raise ValueError("has no task, which says which of the cluster's tasks this process is")
        if self.task_type == "ps":
            raise ValueError("makes this process a parameter server, which is no client: chief and workers are")
        tasks = self.jobs.get(self.task_type, [])
        if not 0 <= self.task_index < len(tasks):
            raise ValueError(f"has no address for its task, {self.task_type} {self.task_index}")
        names = self._names()
        before = names[: names.index(self.task_type)]
        return sum(len(self.jobs.get(name, [])) for name in before) + self.task_index

    def _names(self) -> tuple[str, ...]:
        if self.task_type in (None, "ps", *_TOGETHER) and any(name in self.jobs for name in _TOGETHER):
            return _TOGETHER
        return tuple(self.jobs) if self.task_type is None else (self.task_type,)


def _addresses(name: object, tasks: Any) -> list[str]:
    if isinstance(tasks, dict):
        numbered = {_index(index): address for index, address in tasks.items()}
        if sorted(numbered) != list(range(len(numbered))):
            raise ValueError(f"gives the tasks of {name!r} by indices that are not 0, 1, 2 and so on")
        tasks = [numbered[index] for index in sorted(numbered)]
    if not isinstance(tasks, list) or not all(isinstance(address, str) for address in tasks):
        raise ValueError(f"has tasks of {name!r} that are not a list of addresses")
    addresses = [address.removeprefix("grpc://") for address in tasks]
    for address in addresses:
        Address.parse(address)
    return addresses


def _index(value: object) -> int:
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) > PROCESSES_MAX:
        raise ValueError(f"has the task index {value!r:.50}, which is not a whole number")
    return int(text)
