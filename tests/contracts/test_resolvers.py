"""Every cluster resolver: detection without the world, agreement of all ranks, errors that name variables."""

from __future__ import annotations

import builtins
import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bringup.errors import ConfigurationError
from bringup.resolvers.base import ClusterResolver, Outcome
from bringup.resolvers.registry import automatic_resolvers, find_resolver
from bringup.runtime.configuration.job import JobSpec
from bringup.runtime.configuration.resolve import resolve_job

from ..lib.launches import detected, launch
from ..lib.pmi_launcher import PMILauncher


@dataclass(frozen=True)
class Example:
    """A job as a cluster describes it to each of its processes.

    Attributes:
        common: the variables of all processes.
        each: those of each, in the order of their ranks.
        size: the variable that says how many processes there are, where there is one that can be 1.
        host: of client 0.
        optional: variables without which the job is known all the same.
    """

    common: Mapping[str, str]
    each: tuple[Mapping[str, str], ...]
    host: str
    size: str | None = None
    optional: tuple[str, ...] = ()

    def environments(self) -> list[dict[str, str]]:
        return [{**self.common, **each} for each in self.each]


def tf_config(index: int) -> str:
    return json.dumps({"cluster": {"worker": ["h0:9000", "h1:9000"]}, "task": {"type": "worker", "index": index}})


EXAMPLES = {
    "torchrun": Example(
        {"MASTER_ADDR": "h0", "MASTER_PORT": "29500", "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3"},
        tuple({"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(3)),
        "h0",
        "WORLD_SIZE",
        ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ),
    "ompi": Example(
        {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_MCA_orte_hnp_uri": "8192.0;tcp://10.0.0.1:5", "PMIX_NAMESPACE": "8193"},
        tuple({"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_RANK": "0"} for rank in range(2)),
        "10.0.0.1",
        "OMPI_COMM_WORLD_SIZE",
        ("PMIX_NAMESPACE",),
    ),
    "pmi": Example(
        {"PMI_SIZE": "2", "PMI_FD": "4999", "MPI_LOCALNRANKS": "2"},
        ({"PMI_RANK": "0"}, {"PMI_RANK": "1"}),
        "127.0.0.1",
        None,
        ("MPI_LOCALNRANKS",),
    ),
    "tf_config": Example({}, tuple({"TF_CONFIG": tf_config(index)} for index in range(2)), "h0"),
    "slurm": Example(
        {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "3", "SLURM_STEP_NODELIST": "h[0-2]"},
        tuple({"SLURM_PROCID": str(task), "SLURM_LOCALID": "0"} for task in range(3)),
        "h0",
        "SLURM_NTASKS",
    ),
    "lws": Example(
        {"LWS_LEADER_ADDRESS": "h0.group.ns", "LWS_GROUP_SIZE": "2"},
        ({"LWS_WORKER_INDEX": "0"}, {"LWS_WORKER_INDEX": "1"}),
        "h0.group.ns",
        "LWS_GROUP_SIZE",
    ),
    "gketpu": Example(
        {"TPU_WORKER_HOSTNAMES": "w0,w1"},
        ({"TPU_WORKER_ID": "0"}, {"TPU_WORKER_ID": "1"}),
        "w0",
    ),
    "sagemaker": Example(
        {"SM_HOSTS": '["algo-1", "algo-2"]'},
        ({"SM_CURRENT_HOST": "algo-1"}, {"SM_CURRENT_HOST": "algo-2"}),
        "algo-1",
    ),
}
"""An example for each resolver."""


@contextlib.contextmanager
def launched(name: str) -> Iterator[list[dict[str, str]]]:
    """Have the launcher of an example run, where its processes need one."""
    environments = EXAMPLES[name].environments()
    if name != "pmi":
        yield environments
        return
    with PMILauncher(len(environments)) as launcher:
        yield [each | wire for each, wire in zip(environments, launcher.environments(), strict=True)]


def resolve_all(environments: list[dict[str, str]], **arguments: Any) -> list[JobSpec]:
    """Resolve the job in all its processes at once, as they may wait for each other."""
    with ThreadPoolExecutor(len(environments)) as threads:
        return list(threads.map(lambda environment: resolve_job(environ=environment, **arguments), environments))


def resolver_of(name: str) -> ClusterResolver:
    return find_resolver(name)


def needed(example: Example) -> list[str]:
    return [name for name in example.environments()[0] if name not in example.optional]


def test_every_resolver_has_an_example() -> None:
    assert {resolver.name for resolver in automatic_resolvers()} == {*EXAMPLES, "k8s"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_name_finds_the_resolver_in_any_case(name: str) -> None:
    assert resolver_of(name.upper()).name == name
    assert isinstance(resolver_of(name), ClusterResolver)


@pytest.mark.parametrize("name", EXAMPLES)
def test_all_processes_describe_one_job(name: str) -> None:
    example = EXAMPLES[name]
    with launched(name) as environments:
        specs = resolve_all(environments)
        forced = resolve_all(environments, resolver=name)
    assert {(spec.source, spec.num_clients, spec.job_name) for spec in specs} == {(name, len(specs), "worker")}
    assert [spec.client_id for spec in specs] == list(range(len(specs)))
    (coordinator,) = {spec.coordinator_address for spec in specs}
    assert coordinator is not None
    assert coordinator.rpartition(":")[0] == example.host
    assert {spec.jobs for spec in specs} in ({specs[0].jobs}, {None})
    assert [facts(spec) for spec in forced] == [facts(spec) for spec in specs]
    for spec in specs:
        assert not [origin for origin in spec.provenance.values() if origin.startswith("resolver")], spec.provenance


def facts(spec: JobSpec) -> tuple[object, ...]:
    return spec.coordinator_address, spec.jobs, spec.num_clients, spec.client_id, spec.local_client_id


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_port_can_be_given(name: str) -> None:
    with launched(name) as environments:
        specs = resolve_all([environment | {"BRINGUP_PORT": "4321"} for environment in environments])
    for spec in specs:
        assert spec.coordinator_address == f"{EXAMPLES[name].host}:4321"
        assert "BRINGUP_PORT" in spec.provenance["coordinator_address"] or name == "pmi", "client 0 says it"
    for environment in environments:
        with pytest.raises(ConfigurationError, match="BRINGUP_PORT='x' is not a whole number"):
            resolve_job(environ=environment | {"BRINGUP_PORT": "x"})


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_missing_variable_is_named_and_never_local_mode(name: str) -> None:
    example = EXAMPLES[name]
    for environment in example.environments():
        for removed in needed(example):
            rest = {given: value for given, value in environment.items() if given != removed}
            with pytest.raises(ConfigurationError, match=rf"{removed} is not set.*resolver.*'none'"):
                resolve_job(environ=rest, resolver=name)
            if any(detected(resolver, rest).outcome is not Outcome.ABSENT for resolver in automatic_resolvers()):
                with pytest.raises(ConfigurationError, match=f"{removed} is not set"):
                    resolve_job(environ=rest)
            assert resolve_job(environ=rest, resolver="none").is_local


@pytest.mark.parametrize("name", [name for name, example in EXAMPLES.items() if example.optional])
def test_what_a_job_is_known_without(name: str) -> None:
    for removed in EXAMPLES[name].optional:
        with launched(name) as environments:
            for environment in environments:
                del environment[removed]
            specs = resolve_all(environments)
        assert [(spec.source, spec.client_id) for spec in specs] == [(name, rank) for rank in range(len(specs))]


@pytest.mark.parametrize("name", [name for name, example in EXAMPLES.items() if example.size is not None])
def test_one_process_is_local_mode(name: str) -> None:
    example = EXAMPLES[name]
    environment = example.environments()[0] | {str(example.size): "1"}
    assert detected(resolver_of(name), environment).outcome is Outcome.ALONE
    spec = resolve_job(environ=environment)
    assert (spec.source, spec.is_local) == ("local mode", True)
    assert f"({name})" in spec.considered[-1].verdict
    assert resolve_job(environ=environment, resolver=name).num_clients == 1


@pytest.fixture
def no_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let whatever leaves the environment variables fail."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("it looked at the world")

    for module, name in (
        (socket, "socket"),
        (socket, "getaddrinfo"),
        (socket, "gethostname"),
        (builtins, "open"),
        (os, "stat"),
        (os, "getenv"),
        (subprocess, "run"),
        (subprocess, "Popen"),
    ):
        monkeypatch.setattr(module, name, refuse)


@pytest.mark.parametrize("name", EXAMPLES)
def test_detection_looks_at_variables_only(name: str, request: pytest.FixtureRequest) -> None:
    resolver, launches = resolver_of(name), [launch(each) for each in ("arbitrary", "ompi", "mpich", "torchrun")]
    request.getfixturevalue("no_world")
    assert detected(resolver, {}).outcome is Outcome.ABSENT
    for environment in (*EXAMPLES[name].environments(), *(each for ranks in launches for each in ranks)):
        detected(resolver, environment)
    assert detected(resolver, EXAMPLES[name].environments()[0]).outcome is Outcome.PRESENT


VARIABLES = sorted({name for example in EXAMPLES.values() for name in example.environments()[0]})
VALUES = st.sampled_from(
    ["", "0", "1", "2", "h0", "h[0-1]", "h[", "[]", "{}", '["a"]', '{"cluster": 1}', "-1", "99999999999"]
) | st.text(max_size=8)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.sampled_from(sorted(EXAMPLES)), st.dictionaries(st.sampled_from(VARIABLES), VALUES))
def test_any_environment_gives_a_job_or_a_configuration_error(name: str, changed: dict[str, str]) -> None:
    environment = EXAMPLES[name].environments()[0] | changed
    for resolver in automatic_resolvers():
        assert detected(resolver, environment).ground
    for forced in (None, name):
        with contextlib.suppress(ConfigurationError):
            spec = resolve_job(environ=environment, resolver=forced)
            assert 0 <= spec.client_id < spec.num_clients
