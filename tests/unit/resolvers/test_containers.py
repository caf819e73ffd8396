"""SageMaker and LeaderWorkerSet: hosts in the order of their numbers, one client in each container."""

from __future__ import annotations

import json

import pytest

from bringup.errors import ConfigurationError
from bringup.runtime.configuration.resolve import resolve_job


def hosts(*names: str, current: str) -> dict[str, str]:
    return {"SM_HOSTS": json.dumps(names), "SM_CURRENT_HOST": current}


def test_hosts_of_sagemaker_by_their_numbers() -> None:
    names = [f"algo-{number}" for number in (10, 2, 1, 11)]
    spec = resolve_job(environ=hosts(*names, current="algo-10"))
    assert spec.jobs == ("algo-1:2223", "algo-2:2223", "algo-10:2223", "algo-11:2223")
    assert (spec.source, spec.client_id, spec.local_client_id, spec.num_local_clients) == ("sagemaker", 2, 0, 1)


def test_one_host_of_sagemaker_is_local_mode() -> None:
    assert resolve_job(environ=hosts("algo-1", current="algo-1")).is_local
    assert resolve_job(environ={"SM_HOSTS": ""}).is_local


@pytest.mark.parametrize(
    ("text", "part"),
    [("algo-1", "is not JSON"), ("[]", "not a list"), ('["a", 1]', "not a list"), ('{"a": 1}', "not a list")],
)
def test_hosts_that_are_malformed(text: str, part: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"SM_HOSTS=.*{part}"):
        resolve_job(environ={"SM_HOSTS": text, "SM_CURRENT_HOST": "a"})


def test_a_host_that_is_not_among_them() -> None:
    with pytest.raises(ConfigurationError, match="SM_CURRENT_HOST='algo-3' is not among the hosts of SM_HOSTS"):
        resolve_job(environ=hosts("algo-1", "algo-2", current="algo-3"))


def test_a_group_of_pods() -> None:
    group = {"LWS_LEADER_ADDRESS": "lws-0.lws.default", "LWS_GROUP_SIZE": "4", "LWS_WORKER_INDEX": "3"}
    spec = resolve_job(environ=group)
    assert (spec.source, spec.coordinator_address) == ("lws", "lws-0.lws.default:55527")
    assert (spec.num_clients, spec.client_id, spec.num_local_clients) == (4, 3, 1)
    with pytest.raises(ConfigurationError, match="LWS_WORKER_INDEX='4' is not below LWS_GROUP_SIZE=4"):
        resolve_job(environ=group | {"LWS_WORKER_INDEX": "4"})
