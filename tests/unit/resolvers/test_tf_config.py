"""TF_CONFIG: which tasks are clients, in which order; sparse, single and malformed clusters."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bringup.errors import ConfigurationError
from bringup.resolvers.base import Outcome
from bringup.resolvers.tf_config import TFConfig
from bringup.runtime.configuration.resolve import resolve_job

from ...lib.launches import detected

CLUSTER = {
    "ps": ["ps0:2222", "ps1:2222"],
    "worker": ["w0:2222", "w1:2222", "w2:2222"],
    "chief": ["c0:2222"],
    "evaluator": ["e0:2222"],
}


def config(cluster: object, kind: object = None, index: object = 0) -> dict[str, str]:
    task = {} if kind is None else {"task": {"type": kind, "index": index}}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, **task})}


@pytest.mark.parametrize(("kind", "index", "client"), [("chief", 0, 0), ("worker", 0, 1), ("worker", "2", 3)])
def test_chief_and_workers_are_the_clients(kind: str, index: object, client: int) -> None:
    spec = resolve_job(environ=config(CLUSTER, kind, index))
    assert spec.jobs == ("c0:2222", "w0:2222", "w1:2222", "w2:2222")
    assert (spec.source, spec.client_id, spec.job_name) == ("tf_config", client, "worker")


def test_other_jobs_are_by_themselves() -> None:
    spec = resolve_job(environ=config({"trainer": ["a:1", "b:1"], "reader": ["c:1"]}, "trainer", 1))
    assert (spec.jobs, spec.client_id, spec.job_name) == (("a:1", "b:1"), 1, "trainer")


def test_a_cluster_by_indices() -> None:
    assert resolve_job(environ=config({"worker": {"1": "b:1", "0": "a:1"}}, "worker", 1)).jobs == ("a:1", "b:1")
    with pytest.raises(ConfigurationError, match=r"TF_CONFIG=.*indices that are not 0, 1, 2"):
        resolve_job(environ=config({"worker": {"1": "b:1", "3": "a:1"}}, "worker", 1))


@pytest.mark.parametrize(
    "environment",
    [
        config(CLUSTER, "evaluator"),
        config({"worker": ["a:1"]}, "worker"),
        config({"worker": ["a:1"]}),
        config({"chief": ["a:1"], "ps": ["b:1"]}, "chief"),
    ],
)
def test_one_task_is_local_mode(environment: dict[str, str]) -> None:
    assert detected(TFConfig(), environment).outcome is Outcome.ALONE
    assert resolve_job(environ=environment).is_local


@pytest.mark.parametrize("text", ["{}", '{"cluster": {}}', '{"task": {"type": "worker"}}', " "])
def test_no_cluster(text: str) -> None:
    assert detected(TFConfig(), {"TF_CONFIG": text}).outcome is Outcome.ABSENT
    assert resolve_job(environ={"TF_CONFIG": text}).is_local


def test_tensorflows_own_port_can_be_left_to_it() -> None:
    spec = resolve_job(environ=config(CLUSTER, "worker", 0) | {"BRINGUP_PORT": "7000"})
    assert (spec.coordinator_address, spec.jobs, spec.num_clients) == ("c0:7000", None, 4)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{", "is not JSON"),
        ("[" * 100000, "is not JSON"),
        ("[]", "is not a JSON object"),
        ('{"cluster": ["a:1"]}', "not a JSON object"),
        ('{"cluster": {"worker": "a:1,b:1"}}', "not a list of addresses"),
        ('{"cluster": {"worker": ["a:1", 2]}}', "not a list of addresses"),
        ('{"cluster": {"worker": ["a:1", "b"]}}', "'b' has no port"),
        ('{"cluster": {"worker": ["a:1", "b:1"]}}', "has no task"),
        ('{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": "x"}}', "index 'x'"),
        ('{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 9}}', "worker 9"),
        ('{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": true}}', "index True"),
    ],
)
def test_malformed(text: str, part: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve_job(environ={"TF_CONFIG": text})
    assert str(caught.value).startswith("TF_CONFIG=")
    assert part in str(caught.value)


@pytest.mark.parametrize(("kind", "part"), [("ps", "parameter server, which is no client"), ("reader", "reader 0")])
def test_tasks_that_are_no_clients(kind: Any, part: str) -> None:
    with pytest.raises(ConfigurationError, match=part):
        resolve_job(environ=config(CLUSTER, kind))


def test_a_scheme_is_left_out() -> None:
    assert resolve_job(environ=config({"worker": ["grpc://a:1", "b:1"]}, "worker", 1)).jobs == ("a:1", "b:1")
