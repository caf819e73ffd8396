"""Cloud TPU in GKE: jax's answers, slices, and what a pod of a slice may lack; and pods of an Indexed Job."""

from __future__ import annotations

from typing import Any

import pytest

from bringup.errors import ConfigurationError
from bringup.resolvers.gketpu import GkeTPU
from bringup.runtime.configuration.resolve import resolve_job

from ...lib.launches import ask, vectors

WORKER = {"TPU_WORKER_HOSTNAMES": "w0.svc,w1.svc", "TPU_WORKER_ID": "1"}
SLICES = {
    "MEGASCALE_NUM_SLICES": "2",
    "MEGASCALE_SLICE_ID": "1",
    "MEGASCALE_COORDINATOR_ADDRESS": "localhost:8080",
}


@pytest.mark.parametrize("case", [case for case in vectors("jax_clusters") if case["cluster"] == "gketpu"])
def test_as_jax(case: dict[str, Any]) -> None:
    job = ask(GkeTPU(), case["env"])
    assert job.coordinator_address == case["coordinator_address"]
    assert (job.num_clients, job.client_id) == (case["num_processes"], case["process_id"])
    assert job.local_client_id == case["local_process_id"]
    spec = resolve_job(environ=case["env"])
    assert (spec.source, spec.num_clients) == (
        ("local mode", 1) if case["num_processes"] == 1 else ("gketpu", case["num_processes"])
    )


def test_slices() -> None:
    job = ask(GkeTPU(), WORKER | SLICES)
    assert (job.num_clients, job.client_id, job.coordinator_address) == (4, 3, "localhost:8482")
    job = ask(GkeTPU(), WORKER | SLICES | {"TPU_PROCESS_ADDRESSES": "a:1,b:1,c:1", "JAX_COORDINATOR_PORT": "77"})
    assert (job.num_clients, job.client_id, job.coordinator_address) == (6, 4, "localhost:77")
    job = ask(GkeTPU(), WORKER | {"TPU_PROCESS_ADDRESSES": "[fd00::1]:1,[fd00::2]:1"})
    assert job.coordinator_address == "[fd00::1]:8482"


@pytest.mark.parametrize("removed", ["TPU_WORKER_HOSTNAMES", "TPU_WORKER_ID", *list(SLICES)[1:]])
def test_a_worker_that_lacks_a_variable(removed: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{removed} is not set, and resolver 'gketpu'"):
        resolve_job(environ={name: value for name, value in (WORKER | SLICES).items() if name != removed})


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"TPU_WORKER_ID": "2"}, "TPU_WORKER_ID='2' is not below the number of workers in TPU_WORKER_HOSTNAMES=2"),
        ({"MEGASCALE_SLICE_ID": "2"}, "MEGASCALE_SLICE_ID='2' is not below MEGASCALE_NUM_SLICES=2"),
        ({"MEGASCALE_COORDINATOR_ADDRESS": "a b"}, "MEGASCALE_COORDINATOR_ADDRESS='a b' has no host"),
        ({"MEGASCALE_NUM_SLICES": "0"}, "MEGASCALE_NUM_SLICES='0'"),
    ],
)
def test_what_a_worker_cannot_have(changed: dict[str, str], part: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve_job(environ=WORKER | SLICES | changed)
    assert part in str(caught.value)


def test_a_pod_of_an_indexed_job_is_never_alone() -> None:
    with pytest.raises(ConfigurationError, match=r"pod 3 of an Indexed Job.*BRINGUP_JOBS.*'none'"):
        resolve_job(environ={"JOB_COMPLETION_INDEX": "3"})
    assert resolve_job(environ={"JOB_COMPLETION_INDEX": "3"} | WORKER).source == "gketpu"
    assert resolve_job(environ={"JOB_COMPLETION_INDEX": "3"}, resolver="none").is_local
