"""Where the job comes from: each source, each of its errors, and their order."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.errors import ConfigurationError
from bringup.resolvers import registry
from bringup.resolvers.base import ClusterJob, Detection, Outcome
from bringup.runtime.configuration.job import JobSpec
from bringup.runtime.configuration.resolve import resolve_job

SEED = "localhost:10000,localhost:10001,localhost:10002,localhost:10003"
KERAS = "KERAS_DISTRIBUTION_"
SOURCES = ["arguments", "BRINGUP_*", "DTENSOR_*", "KERAS_DISTRIBUTION_*", "JAX_*", "local mode"]


def env(**environ: str) -> JobSpec:
    return resolve_job(environ=environ)


def env_refusal(environ: Mapping[str, str]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        resolve_job(environ=environ)
    return str(caught.value)


def argument_refusal(**arguments: object) -> str:
    with pytest.raises(ConfigurationError) as caught:
        resolve_job(**arguments, environ={})  # type: ignore[arg-type]
    return str(caught.value)


def verdicts(spec: JobSpec) -> dict[str, str]:
    return {one.source: one.verdict for one in spec.considered}


# Local mode


def test_nothing_given_is_local_mode() -> None:  # C1
    spec = env()
    assert spec.source == "local mode"
    assert (spec.jobs, spec.coordinator_address, spec.own_address) == (None, None, None)
    assert (spec.num_clients, spec.client_id, spec.local_client_id, spec.job_name) == (1, 0, None, "localhost")
    assert spec.is_local
    assert spec.is_loopback
    resolvers = [resolver.name for resolver in registry.automatic_resolvers()]
    assert [one.source for one in spec.considered] == [*SOURCES[:-1], *resolvers, SOURCES[-1]]
    assert "BRINGUP_JOBS is not set" in verdicts(spec)["BRINGUP_*"]
    assert "DTENSOR_JOBS is not set" in verdicts(spec)["DTENSOR_*"]
    assert verdicts(spec)["local mode"].startswith("taken")


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"BRINGUP_JOB_NAME": "trainer"}, "trainer"),
        ({"DTENSOR_JOB_NAME": "foo"}, "foo"),
        ({"BRINGUP_JOB_NAME": "trainer", "DTENSOR_JOB_NAME": "foo"}, "trainer"),
    ],
)
def test_a_job_name_alone_names_the_local_job(environ: dict[str, str], name: str) -> None:
    spec = resolve_job(environ=environ)
    assert spec.is_local
    assert spec.job_name == name
    assert "alone names no clients" in "".join(verdicts(spec).values())


@pytest.mark.parametrize(
    "environ",
    [
        {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1", "JAX_LOCAL_DEVICE_IDS": "0"},
        {"DTENSOR_NUM_CLIENTS": "4"},  # C12
        {"DTENSOR_CLIENT_ID": "0"},
        {"DTENSOR_CLIENT_ID": ""},
        {"BRINGUP_JOBS": "", "BRINGUP_CLIENT_ID": " "},
        {"KERAS_DISTRIBUTION_JOB_ADDRESSES": ""},
        {"JAX_COORDINATOR_ADDRESS": ""},
    ],
)
def test_variables_that_identify_no_job(environ: dict[str, str]) -> None:
    assert resolve_job(environ=environ).is_local


def test_empty_variables_are_reported_as_empty() -> None:
    assert "BRINGUP_JOBS is empty" in verdicts(env(BRINGUP_JOBS=""))["BRINGUP_*"]


# DTENSOR_*


def test_the_first_example_of_the_dtensor_documentation() -> None:
    spec = env(DTENSOR_JOBS=SEED, DTENSOR_CLIENT_ID="2")
    assert spec.source == "DTENSOR_*"
    assert spec.jobs == tuple(SEED.split(","))
    assert (spec.num_clients, spec.client_id, spec.job_name) == (4, 2, "worker")
    assert (spec.coordinator_address, spec.own_address) == ("localhost:10000", "localhost:10002")
    assert spec.is_loopback
    assert not spec.is_local
    assert spec.provenance["jobs"] == "DTENSOR_JOBS"
    assert spec.provenance["client_id"] == "DTENSOR_CLIENT_ID"
    assert spec.provenance["num_clients"] == "the length of DTENSOR_JOBS"


@pytest.mark.parametrize("count", [16])
@pytest.mark.parametrize("suffix", ["", ":8888"])
def test_sorted_bns_names_are_kept_as_they_are(count: int, suffix: str) -> None:  # C3, C4
    jobs = tuple(f"/bns/localhost/{task}{suffix}" for task in range(count))
    spec = env(DTENSOR_JOBS=",".join(jobs))
    assert spec.jobs == jobs
    assert not spec.is_loopback


@pytest.mark.parametrize(
    "jobs",
    [
        ",".join(f"/bns/localhost/{task}" for task in range(100, 84, -1)),  # C5
        "/bns/localhost/10:8888,/bns/localhost/2:8888",  # C17
    ],
)
def test_unsorted_bns_names_are_refused(jobs: str) -> None:
    message = env_refusal({"DTENSOR_JOBS": jobs})
    assert "Unexpected DTENSOR_JOBS content" in message
    assert "Sort entries in DTENSOR_JOBS" in message


def test_host_and_port_lists_need_no_order() -> None:  # C6
    jobs = tuple(f"localhost:{port}" for port in range(16, 0, -1))
    assert env(DTENSOR_JOBS=",".join(jobs)).jobs == jobs


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"DTENSOR_JOBS": "a:1,b:2"}, (2, 0, "worker")),  # C7
        ({"DTENSOR_JOBS": "a:1,b:2", "DTENSOR_CLIENT_ID": "1", "DTENSOR_JOB_NAME": "foo"}, (2, 1, "foo")),  # C8
        ({"DTENSOR_JOBS": "a:1,b:2", "DTENSOR_CLIENT_ID": " 1 "}, (2, 1, "worker")),  # C9
        ({"DTENSOR_JOBS": "a:1"}, (1, 0, "localhost")),
        ({"DTENSOR_JOBS": "/bns/localhost/2,/bns/localhost/10"}, (2, 0, "worker")),  # C16
        ({"DTENSOR_JOBS": "/bns/a/tpu_worker/0:port_name"}, (1, 0, "localhost")),
        ({"DTENSOR_JOBS": "a:1,b:2", "DTENSOR_NUM_CLIENTS": "5"}, (2, 0, "worker")),
    ],
)
def test_dtensor_jobs(environ: dict[str, str], expected: tuple[int, int, str]) -> None:
    spec = resolve_job(environ=environ)
    assert (spec.num_clients, spec.client_id, spec.job_name) == expected
    assert not spec.is_local


def test_ports_padded_with_zeros_are_written_without() -> None:  # L13
    assert env(DTENSOR_JOBS="localhost:010002,localhost:010001").jobs == ("localhost:10002", "localhost:10001")


@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_dtensor_list_is_local_mode(text: str) -> None:  # C14, as documented
    spec = env(DTENSOR_JOBS=text)
    assert spec.is_local
    assert verdicts(spec)["DTENSOR_*"] == "passed over: DTENSOR_JOBS is empty, which asks for local mode"


@pytest.mark.parametrize(
    ("jobs", "client_id", "parts"),
    [
        ("a:1,b:2", "-1", ["DTENSOR_CLIENT_ID='-1'", "must be >= 0"]),  # C9
        ("a:1,b:2", "2", ["DTENSOR_CLIENT_ID='2'", "must be < 2"]),
        ("a:1,b:2", "abc", ["DTENSOR_CLIENT_ID='abc'", "whole number"]),
        ("a:1,b:2", "1.0", ["DTENSOR_CLIENT_ID='1.0'", "whole number"]),
        ("a:1,b:2", "", ["DTENSOR_CLIENT_ID=''", "is empty"]),
        ("a:1", "1", ["DTENSOR_CLIENT_ID='1'", "must be < 1"]),
        (None, "1", ["DTENSOR_CLIENT_ID='1'", "DTENSOR_JOBS"]),  # C10
        ("", "1", ["DTENSOR_CLIENT_ID='1'", "DTENSOR_JOBS"]),
        (None, "abc", ["DTENSOR_CLIENT_ID='abc'", "whole number"]),
        (None, "-1", ["DTENSOR_CLIENT_ID='-1'", "must be >= 0"]),
        ("a:1, b:2,", None, ["DTENSOR_JOBS='a:1, b:2,'", "position 2", "is empty"]),  # C15
        (",", None, ["DTENSOR_JOBS=','", "position 0", "is empty"]),
        ("a:1,,b:2", None, ["DTENSOR_JOBS=", "position 1", "is empty"]),
        ("a:1,b", None, ["DTENSOR_JOBS=", "position 1", "'b' has no port"]),
        ("a:1,b:2,a:1", None, ["DTENSOR_JOBS=", "'a:1' twice", "positions 0 and 2"]),
        ("a:1,A:01", None, ["'a:1' twice", "positions 0 and 1"]),
        ("0.0.0.0:1,b:2", None, ["position 0", "every interface"]),
        ("/bns/a/0,host:1", None, ["DTENSOR_JOBS=", "position 1", "'host:1'", "BNS"]),  # C18
        ("host:1,/bns/a/0", None, ["DTENSOR_JOBS=", "position 0", "'host:1'", "BNS"]),
        ("/bns/a/x", None, ["DTENSOR_JOBS=", "position 0", "'/bns/a/x'", "integer task id"]),
        ("/bns/a b/0", None, ["DTENSOR_JOBS=", "position 0", "integer task id"]),
        ("/bns/a/0,/bns/a/0", None, ["DTENSOR_JOBS=", "twice", "positions 0 and 1"]),
    ],
)
def test_dtensor_errors_name_the_variable(jobs: str | None, client_id: str | None, parts: list[str]) -> None:
    given = {"DTENSOR_JOBS": jobs, "DTENSOR_CLIENT_ID": client_id}
    message = env_refusal({name: value for name, value in given.items() if value is not None})
    for part in parts:
        assert part in message


# BRINGUP_*


@pytest.mark.parametrize(
    ("environ", "jobs", "coordinator", "facts"),
    [
        (
            {"BRINGUP_JOBS": "h0:9000, h1:9000", "BRINGUP_CLIENT_ID": "1"},
            ("h0:9000", "h1:9000"),
            "h0:9000",
            (2, 1, "worker"),
        ),
        (
            {"BRINGUP_JOBS": "h0:9000,h1:9000", "BRINGUP_CLIENT_ID": "1", "BRINGUP_NUM_CLIENTS": "2"},
            ("h0:9000", "h1:9000"),
            "h0:9000",
            (2, 1, "worker"),
        ),
        (
            {"BRINGUP_JOBS": "h0:9000", "BRINGUP_NUM_CLIENTS": "4", "BRINGUP_CLIENT_ID": "3"},
            None,
            "h0:9000",
            (4, 3, "worker"),
        ),
        ({"BRINGUP_JOBS": "h0:9000"}, ("h0:9000",), "h0:9000", (1, 0, "localhost")),
        ({"BRINGUP_JOBS": "h0:9000", "BRINGUP_NUM_CLIENTS": "1"}, ("h0:9000",), "h0:9000", (1, 0, "localhost")),
        ({"BRINGUP_JOBS": "[::1]:9", "BRINGUP_JOB_NAME": "a/b-c_1.2"}, ("[::1]:9",), "[::1]:9", (1, 0, "a/b-c_1.2")),
        ({"BRINGUP_NUM_CLIENTS": "1"}, None, None, (1, 0, "localhost")),
        ({"BRINGUP_NUM_CLIENTS": "1", "BRINGUP_CLIENT_ID": "0"}, None, None, (1, 0, "localhost")),
    ],
)
def test_bringup_variables(
    environ: dict[str, str], jobs: tuple[str, ...] | None, coordinator: str | None, facts: tuple[int, int, str]
) -> None:
    spec = resolve_job(environ=environ)
    assert spec.source == "BRINGUP_*"
    assert (spec.jobs, spec.coordinator_address) == (jobs, coordinator)
    assert (spec.num_clients, spec.client_id, spec.job_name) == facts
    assert spec.is_local is (coordinator is None)


@pytest.mark.parametrize(
    ("environ", "parts"),
    [
        ({"BRINGUP_JOBS": "a:1,b:2"}, ["BRINGUP_CLIENT_ID is not set", "2 clients", "BRINGUP_JOBS", "0 to 1"]),
        ({"BRINGUP_JOBS": "a:1,b:2", "BRINGUP_CLIENT_ID": ""}, ["BRINGUP_CLIENT_ID is not set"]),
        ({"BRINGUP_JOBS": "a:1", "BRINGUP_NUM_CLIENTS": "2"}, ["BRINGUP_CLIENT_ID is not set", "BRINGUP_NUM_CLIENTS"]),
        ({"BRINGUP_CLIENT_ID": "0"}, ["BRINGUP_CLIENT_ID='0'", "BRINGUP_JOBS"]),
        ({"BRINGUP_NUM_CLIENTS": "4"}, ["BRINGUP_NUM_CLIENTS='4'", "BRINGUP_JOBS"]),
        ({"BRINGUP_NUM_CLIENTS": "4", "BRINGUP_CLIENT_ID": "1"}, ["BRINGUP_NUM_CLIENTS='4'", "BRINGUP_JOBS"]),
        ({"BRINGUP_NUM_CLIENTS": "1", "BRINGUP_CLIENT_ID": "1"}, ["BRINGUP_CLIENT_ID='1'", "must be < 1"]),
        (
            {"BRINGUP_JOBS": "a:1,b:2", "BRINGUP_NUM_CLIENTS": "3", "BRINGUP_CLIENT_ID": "0"},
            ["BRINGUP_NUM_CLIENTS='3'", "BRINGUP_JOBS", "2 addresses"],
        ),
        ({"BRINGUP_JOBS": "a:1,b:2", "BRINGUP_NUM_CLIENTS": "1"}, ["BRINGUP_NUM_CLIENTS='1'", "2 addresses"]),
        ({"BRINGUP_JOBS": "a:1", "BRINGUP_NUM_CLIENTS": "0"}, ["BRINGUP_NUM_CLIENTS='0'", ">= 1"]),
        ({"BRINGUP_JOBS": "a:1", "BRINGUP_NUM_CLIENTS": "-2"}, ["BRINGUP_NUM_CLIENTS='-2'", ">= 1"]),
        ({"BRINGUP_JOBS": "a:1", "BRINGUP_NUM_CLIENTS": "two"}, ["BRINGUP_NUM_CLIENTS='two'", "whole number"]),
        ({"BRINGUP_JOBS": "a:1", "BRINGUP_NUM_CLIENTS": "9" * 5000}, ["BRINGUP_NUM_CLIENTS='99", "whole number"]),
        ({"BRINGUP_JOBS": "a:1", "BRINGUP_NUM_CLIENTS": "99999999"}, ["BRINGUP_NUM_CLIENTS=", "<= 1048576"]),
        ({"BRINGUP_JOBS": "a:1", "BRINGUP_CLIENT_ID": "1"}, ["BRINGUP_CLIENT_ID='1'", "BRINGUP_NUM_CLIENTS as well"]),
        ({"BRINGUP_JOBS": "a:1", "BRINGUP_JOB_NAME": "a b"}, ["BRINGUP_JOB_NAME='a b'", "letters"]),
        ({"BRINGUP_JOBS": "a:1", "BRINGUP_JOB_NAME": "x" * 256}, ["BRINGUP_JOB_NAME=", "255"]),
        ({"BRINGUP_JOBS": "a:1", "BRINGUP_JOB_NAME": "é"}, ["BRINGUP_JOB_NAME='é'"]),
        ({"BRINGUP_JOBS": "localhost:notaport"}, ["BRINGUP_JOBS=", "'notaport'"]),
    ],
)
def test_bringup_errors_name_the_variable(environ: dict[str, str], parts: list[str]) -> None:
    message = env_refusal(environ)
    for part in parts:
        assert part in message
    assert len(message) < 900


# KERAS_DISTRIBUTION_*


@pytest.mark.parametrize(
    ("jobs", "count", "process", "expected", "facts"),
    [
        ("10.0.0.1:1234,10.0.0.2:2345", "2", "0", ("10.0.0.1:1234", "10.0.0.2:2345"), (2, 0)),  # H1, H2
        ("10.0.0.1:1234, 10.0.0.2:2345", None, "1", ("10.0.0.1:1234", "10.0.0.2:2345"), (2, 1)),
        ("10.0.0.1:1234", "5", "3", None, (5, 3)),  # H5
        ("127.0.0.1:29506", "1", "0", ("127.0.0.1:29506",), (1, 0)),  # H8
        ("127.0.0.1:29506", None, None, ("127.0.0.1:29506",), (1, 0)),
    ],
)
def test_keras_variables(
    jobs: str, count: str | None, process: str | None, expected: tuple[str, ...] | None, facts: tuple[int, int]
) -> None:
    given = {"JOB_ADDRESSES": jobs, "NUM_PROCESSES": count, "PROCESS_ID": process}
    spec = resolve_job(environ={KERAS + name: value for name, value in given.items() if value is not None})
    assert spec.source == "KERAS_DISTRIBUTION_*"
    assert spec.jobs == expected
    assert spec.coordinator_address == jobs.split(",")[0]
    assert (spec.num_clients, spec.client_id) == facts


def test_nothing_for_keras_is_passed_over() -> None:  # H3
    assert "KERAS_DISTRIBUTION_JOB_ADDRESSES is not set" in verdicts(env())["KERAS_DISTRIBUTION_*"]


def test_arguments_win_over_keras() -> None:  # H6
    environ = {KERAS + "JOB_ADDRESSES": "a:1,b:2", KERAS + "PROCESS_ID": "1"}
    assert resolve_job(jobs="a:1,b:2", client_id=0, environ=environ).client_id == 0


@pytest.mark.parametrize(
    ("jobs", "count", "process", "parts"),
    [
        ("a:1,b:2", "3", "0", ["NUM_PROCESSES='3'", "2 addresses"]),  # H4
        ("a:1,b:2", "two", "0", ["NUM_PROCESSES='two'", "whole number"]),  # H7
        ("a:1,b:2", "2", "two", ["PROCESS_ID='two'", "whole number"]),
        ("a:1,b:2", "2", None, ["PROCESS_ID is not set"]),
        ("a:1,b:2", "2", "2", ["PROCESS_ID='2'", "must be < 2"]),
        ("a:1,b:2,", "2", "1", ["JOB_ADDRESSES=", "position 2"]),
        ("a:1", None, "3", ["PROCESS_ID='3'", "NUM_PROCESSES as well"]),
        (None, "2", "1", ["NUM_PROCESSES='2'", "KERAS_DISTRIBUTION_JOB_ADDRESSES"]),
        (None, None, "1", ["PROCESS_ID='1'", "KERAS_DISTRIBUTION_JOB_ADDRESSES"]),
    ],
)
def test_keras_errors_name_the_variable(
    jobs: str | None, count: str | None, process: str | None, parts: list[str]
) -> None:
    given = {"JOB_ADDRESSES": jobs, "NUM_PROCESSES": count, "PROCESS_ID": process}
    message = env_refusal({KERAS + name: value for name, value in given.items() if value is not None})
    for part in (KERAS, *parts):
        assert part in message


# JAX_*


def jax(address: str | None, count: str | None, process: str | None) -> dict[str, str]:
    given = {"JAX_COORDINATOR_ADDRESS": address, "JAX_NUM_PROCESSES": count, "JAX_PROCESS_ID": process}
    return {name: value for name, value in given.items() if value is not None}


def test_jax_variables() -> None:
    spec = resolve_job(environ=jax("h0:1234", "4", "2"))
    assert spec.source == "JAX_*"
    assert (spec.jobs, spec.coordinator_address, spec.own_address) == (None, "h0:1234", None)
    assert (spec.num_clients, spec.client_id, spec.job_name) == (4, 2, "worker")
    assert not spec.is_loopback


def test_client_0_is_at_the_address_of_the_coordinator() -> None:
    spec = resolve_job(environ=jax("localhost:1234", "4", "0"))
    assert spec.own_address == "localhost:1234"
    assert spec.is_loopback


def test_jax_with_one_process() -> None:  # B5
    assert resolve_job(environ=jax("localhost:1234", "1", "0")).jobs == ("localhost:1234",)


@pytest.mark.parametrize(
    ("environ", "parts"),
    [
        (jax("h:1", None, None), ["JAX_COORDINATOR_ADDRESS='h:1'", "JAX_NUM_PROCESSES and JAX_PROCESS_ID are not set"]),
        (jax("h:1", "2", None), ["JAX_PROCESS_ID is not set"]),  # B2
        (jax("h:1", None, "0"), ["JAX_NUM_PROCESSES is not set"]),
        (jax(None, "2", "0"), ["JAX_COORDINATOR_ADDRESS is not set"]),  # B1
        (jax("", "2", "0"), ["JAX_COORDINATOR_ADDRESS is not set"]),
        (jax("h:1", "2", "2"), ["JAX_PROCESS_ID='2'", "must be < 2"]),  # B3
        (jax("h:1", "2", "-1"), ["JAX_PROCESS_ID='-1'", ">= 0"]),
        (jax("h:1", "0", "0"), ["JAX_NUM_PROCESSES='0'", ">= 1"]),
        (jax("h:1", "2", "0.0"), ["JAX_PROCESS_ID='0.0'", "whole number"]),  # B4
        (jax("localhost", "2", "0"), ["JAX_COORDINATOR_ADDRESS='localhost'", "has no port"]),  # B15
        (jax("h:1,i:2", "2", "0"), ["JAX_COORDINATOR_ADDRESS='h:1,i:2'", "one host:port"]),
    ],
)
def test_jax_errors_name_the_variable(environ: dict[str, str], parts: list[str]) -> None:
    message = env_refusal(environ)
    for part in parts:
        assert part in message


# Arguments


@pytest.mark.parametrize(
    ("arguments", "jobs", "facts"),
    [
        ({"jobs": "h0:9000,h1:9000", "client_id": 1}, ("h0:9000", "h1:9000"), (2, 1, "worker")),
        ({"jobs": ["h0:9000", " h1:9000 "], "client_id": 1}, ("h0:9000", "h1:9000"), (2, 1, "worker")),
        ({"jobs": ("h0:1",)}, ("h0:1",), (1, 0, "localhost")),
        ({"jobs": ["h0:1"], "num_clients": 3, "client_id": 2}, None, (3, 2, "worker")),
        ({"jobs": "h0:1,h1:1", "num_clients": 2, "client_id": np.int64(1)}, ("h0:1", "h1:1"), (2, 1, "worker")),
        ({"jobs": "h0:1", "job_name": "trainer"}, ("h0:1",), (1, 0, "trainer")),
        ({"num_clients": 1}, None, (1, 0, "localhost")),
        ({"num_clients": 1, "client_id": 0, "job_name": "x"}, None, (1, 0, "x")),
    ],
)
def test_arguments(arguments: dict[str, object], jobs: tuple[str, ...] | None, facts: tuple[int, int, str]) -> None:
    spec = resolve_job(**arguments, environ={"DTENSOR_JOBS": "z:1,y:2"})  # type: ignore[arg-type]
    assert spec.source == "arguments"
    assert spec.jobs == jobs
    assert (spec.num_clients, spec.client_id, spec.job_name) == facts
    assert type(spec.client_id) is int


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ({"jobs": "a:1,b:2"}, ["client_id is not set", "argument jobs"]),
        ({"client_id": 0}, ["client_id=0 (argument)", "jobs"]),
        ({"client_id": True}, ["client_id=True (argument)", "int"]),
        ({"num_clients": 2}, ["num_clients=2 (argument)", "jobs"]),
        ({"num_clients": 2, "client_id": 1}, ["num_clients=2 (argument)", "jobs"]),
        ({"num_clients": 1, "client_id": 1}, ["client_id=1 (argument)", "must be < 1"]),
        ({"jobs": "a:1,b:2", "num_clients": 3, "client_id": 0}, ["num_clients=3 (argument)", "jobs", "2 addresses"]),
        ({"jobs": "a:1,b:2", "client_id": 2}, ["client_id=2 (argument)", "must be < 2"]),
        ({"jobs": "a:1,b:2", "client_id": -1}, ["client_id=-1 (argument)", ">= 0"]),
        ({"jobs": "a:1,b:2", "client_id": False}, ["client_id=False (argument)", "int"]),
        ({"jobs": "a:1,b:2", "client_id": "1"}, ["client_id='1' (argument)", "not a str"]),
        ({"jobs": "a:1,b:2", "client_id": 1.0}, ["client_id=1.0 (argument)", "not a float"]),
        ({"jobs": "a:1", "num_clients": True}, ["num_clients=True (argument)"]),
        ({"jobs": "a:1", "num_clients": "2"}, ["num_clients='2' (argument)", "not a str"]),
        ({"jobs": "a:1", "num_clients": 0}, ["num_clients=0 (argument)", ">= 1"]),
        ({"jobs": ""}, ["jobs='' (argument)", "is empty"]),
        ({"jobs": []}, ["jobs=[] (argument)", "is empty"]),
        ({"jobs": b"a:1"}, ["jobs=b'a:1' (argument)", "bytes"]),
        ({"jobs": 5}, ["jobs=5 (argument)", "int"]),
        ({"jobs": {"a:1", "b:2"}, "client_id": 0}, ["jobs=", "(argument)", "set"]),
        ({"jobs": ["a:1", 5], "client_id": 0}, ["jobs=", "position 1", "not text"]),
        ({"jobs": ["a:1", ""], "client_id": 0}, ["jobs=", "position 1", "is empty"]),
        ({"jobs": ["a:1,b:2"]}, ["jobs=", "position 0"]),
        ({"jobs": "a:1", "job_name": ""}, ["job_name='' (argument)", "is empty"]),
        ({"jobs": "a:1", "job_name": 5}, ["job_name=5 (argument)", "int"]),
        ({"job_name": "a b"}, ["job_name='a b' (argument)", "letters"]),
    ],
)
def test_argument_errors_name_the_argument(arguments: dict[str, object], parts: list[str]) -> None:
    message = argument_refusal(**arguments)
    for part in parts:
        assert part in message


def test_a_job_name_overrides_the_name_from_any_source() -> None:
    environ = {"DTENSOR_JOBS": "a:1,b:2", "DTENSOR_JOB_NAME": "foo"}
    spec = resolve_job(job_name="bar", environ=environ)
    assert (spec.source, spec.job_name) == ("DTENSOR_*", "bar")
    assert spec.provenance["job_name"] == "argument job_name"


# Order

ALL = {
    "BRINGUP_JOBS": "bringup:1",
    "DTENSOR_JOBS": "dtensor:1",
    "KERAS_DISTRIBUTION_JOB_ADDRESSES": "keras:1",
    "JAX_COORDINATOR_ADDRESS": "jax:1",
    "JAX_NUM_PROCESSES": "1",
    "JAX_PROCESS_ID": "0",
}


@pytest.mark.parametrize(
    ("removed", "source", "address"),
    [
        ([], "BRINGUP_*", "bringup:1"),
        (["BRINGUP_"], "DTENSOR_*", "dtensor:1"),
        (["BRINGUP_", "DTENSOR_"], "KERAS_DISTRIBUTION_*", "keras:1"),
        (["BRINGUP_", "DTENSOR_", "KERAS_"], "JAX_*", "jax:1"),
    ],
)
def test_the_first_family_that_applies_is_taken(removed: list[str], source: str, address: str) -> None:
    spec = resolve_job(environ={name: value for name, value in ALL.items() if not name.startswith(tuple(removed))})
    assert (spec.source, spec.coordinator_address) == (source, address)
    at = SOURCES.index(source)
    words = [one.verdict.split(":")[0] for one in spec.considered]
    assert words == ["passed over"] * at + ["taken"] + ["not looked at"] * (len(SOURCES) - at)
    assert [one.source for one in spec.considered] == [*SOURCES[:-1], "cluster resolvers", SOURCES[-1]]
    assert resolve_job(jobs="argument:1", environ=ALL).coordinator_address == "argument:1"


def test_families_are_never_mixed() -> None:
    message = env_refusal({"BRINGUP_CLIENT_ID": "0", "DTENSOR_JOBS": "a:1,b:2"})
    assert "BRINGUP_JOBS" in message
    assert "BRINGUP_CLIENT_ID is not set" in env_refusal({"BRINGUP_JOBS": "a:1,b:2", "DTENSOR_CLIENT_ID": "1"})
    spec = env(DTENSOR_JOBS="a:1,b:2", BRINGUP_JOB_NAME="other")
    assert spec.job_name == "worker"
    assert "BRINGUP_JOB_NAME alone names no clients" in verdicts(spec)["BRINGUP_*"]


def test_arguments_are_not_filled_from_the_environment() -> None:
    with pytest.raises(ConfigurationError, match="client_id is not set"):
        resolve_job(jobs="a:1,b:2", environ={"BRINGUP_CLIENT_ID": "1"})


# Cluster resolvers


class Cluster:
    """A cluster of three that is there, or not."""

    name = "cluster"

    def __init__(self, detection: Detection | bool = True, **fields: Any) -> None:
        self.detection = detection
        self.fields = {"coordinator_address": "h0:1", "num_clients": 3, "client_id": 2, "local_client_id": 0} | fields

    def detect(self, environment: Mapping[str, str]) -> Detection | bool:
        return self.detection

    async def resolve(self, environment: Mapping[str, str]) -> ClusterJob:
        if isinstance(self.detection, Detection) and self.detection.outcome is not Outcome.PRESENT:
            raise ConfigurationError("CLUSTER_ID is not set")
        return ClusterJob(**self.fields)


class Other(Cluster):
    """Another cluster."""

    name = "other"


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def offer(*resolvers: Cluster) -> None:
        monkeypatch.setattr(registry, "automatic_resolvers", lambda: resolvers)

    return offer


def test_cluster_resolvers_come_before_local_mode(clusters: Callable[..., None]) -> None:
    clusters(Cluster(Detection.absent("there is no cluster")), Other(False))
    spec = env()
    assert spec.is_local
    assert verdicts(spec)["cluster"] == "passed over: there is no cluster"
    assert "does not detect" in verdicts(spec)["other"]
    clusters(Cluster(Detection.present("CLUSTER_ID=2")), Other())
    assert (env().source, env().local_client_id) == ("cluster", 0)
    assert verdicts(env())["cluster"] == "taken: CLUSTER_ID=2"
    assert env(BRINGUP_JOBS="a:1").source == "BRINGUP_*"
    assert "cluster resolvers" in verdicts(env(BRINGUP_JOBS="a:1"))


def test_a_launcher_of_one_process_means_local_mode(
    clusters: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "bringup")
    clusters(Cluster(Detection.alone("CLUSTER_SIZE=1")), Other())
    spec = env()
    assert (spec.source, spec.num_clients, spec.is_local) == ("local mode", 1, True)
    assert verdicts(spec)["local mode"] == "taken: CLUSTER_SIZE=1 (cluster)"
    assert "local mode: CLUSTER_SIZE=1 (cluster)" in caplog.text


def test_never_silently_alone(clusters: Callable[..., None]) -> None:
    several = Cluster(Detection.partial("CLUSTER_SIZE=4"))
    clusters(several, Other(False))
    assert env_refusal({}) == "CLUSTER_ID is not set"
    assert resolve_job(resolver="none", environ={}).is_local
    clusters(several, Other())
    assert env().source == "other", "a later one may know"
    assert verdicts(env())["cluster"] == "passed over: CLUSTER_SIZE=4"
    clusters(several, Other(Detection.alone("OTHER_SIZE=1")))
    assert env().is_local


def test_a_resolver_of_ones_own() -> None:
    spec = resolve_job(resolver=Cluster(), job_name="mine", environ={"DTENSOR_JOBS": "a:1"})
    assert (spec.source, spec.num_clients, spec.client_id, spec.job_name) == ("cluster", 3, 2, "mine")
    assert spec.provenance["client_id"] == "resolver cluster"
    origins = {"client_id": "CLUSTER_ID"}
    spec = resolve_job(resolver=Cluster(origins=origins, num_local_clients=2), environ={})
    assert spec.provenance["client_id"] == "CLUSTER_ID"
    assert (spec.local_client_id, spec.num_local_clients) == (0, 2)
    all_of_them = Cluster(jobs=("a:1", "b:1", "c:1"), coordinator_address=None)
    assert resolve_job(resolver=all_of_them, environ={}).coordinator_address == "a:1"


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"client_id": 3}, "client_id=3 (resolver) must be < 3"),
        ({"num_clients": "3"}, "num_clients='3' (resolver)"),
        ({"coordinator_address": "h0"}, "coordinator_address='h0' (resolver)"),
        ({"coordinator_address": None}, "coordinator_address"),
        ({"jobs": ("a:1", "a:1", "b:1")}, "twice"),
        ({"local_client_id": -1}, "local_client_id=-1 (resolver)"),
        ({"local_client_id": 2, "num_local_clients": 2}, "local_client_id=2 (resolver)"),
        ({"job_name": "a b"}, "job_name='a b' (resolver)"),
    ],
)
def test_what_a_resolver_says_is_checked(fields: dict[str, object], part: str) -> None:
    assert part in argument_refusal(resolver=Cluster(**fields))


class Broken(Cluster):
    """A cluster whose resolver fails."""

    async def resolve(self, environment: Mapping[str, str]) -> ClusterJob:
        match environment["HOW"]:
            case "error":
                raise OSError("the wire is cut")
            case "garbage":
                return "h0:1"  # type: ignore[return-value]
            case _:
                await asyncio.Event().wait()
                raise AssertionError


@pytest.mark.parametrize(
    ("how", "part"),
    [("error", "'cluster' failed: OSError('the wire is cut')"), ("garbage", "no bringup.ClusterJob"), ("", "0.01 s")],
)
def test_a_resolver_that_fails(how: str, part: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve_job(resolver=Broken(), environ={"HOW": how}, timeout=0.01)
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"resolver": 5}, "resolver=5 (argument) is no cluster resolver"),
        ({"resolver": Cluster}, "is no cluster resolver"),
        ({"resolver": "no such"}, "resolver='no such' (argument) is not known: the known ones are"),
        ({"resolver": ""}, "resolver='' (argument) is not known"),
        ({"resolver": Cluster(Detection.absent("there is no cluster"))}, "CLUSTER_ID is not set"),
        ({"resolver": Cluster(), "client_id": 1}, "together with jobs, client_id or num_clients"),
        ({"resolver": "none", "num_clients": 1}, "resolver='none' (argument) was given together"),
    ],
)
def test_resolver_errors(arguments: dict[str, object], part: str) -> None:
    assert part in argument_refusal(**arguments)


# The clients of a host


@pytest.mark.parametrize("arguments", [{}, {"jobs": "a:1,b:2", "client_id": 1}, {"resolver": Cluster()}])
def test_a_launcher_says_which_client_of_its_host_this_is(arguments: dict[str, Any]) -> None:
    environ = {"BRINGUP_LOCAL_CLIENT_ID": "3", "BRINGUP_NUM_LOCAL_CLIENTS": "4"}
    spec = resolve_job(**arguments, environ=environ)
    assert (spec.local_client_id, spec.num_local_clients) == (3, 4)
    assert spec.provenance["local_client_id"] == "BRINGUP_LOCAL_CLIENT_ID"


@pytest.mark.parametrize(
    ("local_id", "count", "part"),
    [
        ("1", "", "BRINGUP_LOCAL_CLIENT_ID='1' describes the clients of a host, but BRINGUP_NUM_LOCAL_CLIENTS is not"),
        ("", "2", "BRINGUP_NUM_LOCAL_CLIENTS='2' describes the clients of a host, but BRINGUP_LOCAL_CLIENT_ID is not"),
        ("2", "2", "BRINGUP_LOCAL_CLIENT_ID='2' must be <= 1: give a client's number among 2 of its host"),
        ("-1", "2", "BRINGUP_LOCAL_CLIENT_ID='-1' must be >= 0"),
        ("0", "0", "BRINGUP_NUM_LOCAL_CLIENTS='0' must be >= 1"),
        ("one", "2", "BRINGUP_LOCAL_CLIENT_ID='one' is not a client's number among 2 of its host"),
    ],
)
def test_what_a_launcher_says_of_a_host_is_checked(local_id: str, count: str, part: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        env(BRINGUP_LOCAL_CLIENT_ID=local_id, BRINGUP_NUM_LOCAL_CLIENTS=count)
    assert part in str(caught.value)


# The result


@pytest.mark.parametrize(
    ("jobs", "loopback"),
    [
        (SEED, True),
        ("127.0.0.1:1,[::1]:2,a.localhost:3", True),
        ("localhost:1,h1:1", False),
        ("10.0.0.1:1,10.0.0.2:1", False),
    ],
)
def test_a_loopback_job_has_only_loopback_addresses(jobs: str, loopback: bool) -> None:
    assert resolve_job(jobs=jobs, client_id=0, environ={}).is_loopback is loopback


def test_json_has_the_keys_of_the_contract() -> None:
    spec = env(DTENSOR_JOBS="a:1,b:2", DTENSOR_CLIENT_ID="1")
    json_object = json.loads(json.dumps(spec.to_json()))
    assert list(json_object) == [
        "source",
        "jobs",
        "coordinator_address",
        "num_clients",
        "client_id",
        "local_client_id",
        "job_name",
        "considered",
    ]
    assert json_object["jobs"] == ["a:1", "b:2"]
    assert json_object["considered"][2] == {"source": "DTENSOR_*", "verdict": "taken: DTENSOR_JOBS is given"}
    assert env().to_json()["jobs"] is None


def test_a_spec_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        env().client_id = 1  # type: ignore[misc]


VARIABLES = [
    "BRINGUP_JOBS",
    "BRINGUP_NUM_CLIENTS",
    "BRINGUP_CLIENT_ID",
    "BRINGUP_JOB_NAME",
    "DTENSOR_JOBS",
    "DTENSOR_CLIENT_ID",
    "DTENSOR_JOB_NAME",
    "KERAS_DISTRIBUTION_JOB_ADDRESSES",
    "KERAS_DISTRIBUTION_NUM_PROCESSES",
    "KERAS_DISTRIBUTION_PROCESS_ID",
    "JAX_COORDINATOR_ADDRESS",
    "JAX_NUM_PROCESSES",
    "JAX_PROCESS_ID",
]
NEARLY = st.text(alphabet="abh019:,[]%./- \n+_\u0661\udcff", max_size=20)
WHOLE = st.sampled_from(["a:1", "a:1,b:2", "/bns/a/0,/bns/a/1", "[::1]:9,[::2]:9", "0", "1", "2", "worker"])


@given(st.dictionaries(st.sampled_from(VARIABLES), st.text() | NEARLY | WHOLE))
def test_any_environment_gives_a_job_or_a_configuration_error(environ: dict[str, str]) -> None:
    try:
        spec = resolve_job(environ=environ)
    except ConfigurationError:
        return
    assert 0 <= spec.client_id < spec.num_clients
    assert spec.jobs is None or len(spec.jobs) == spec.num_clients
    assert spec.is_local is (spec.coordinator_address is None)
    assert isinstance(spec.is_loopback, bool)
    json.dumps(spec.to_json()).encode("ascii")


def test_semicolons_between_addresses_are_called_that() -> None:
    with pytest.raises(ConfigurationError, match="separate the addresses by commas"):
        resolve_job(jobs="a:1;b:2", client_id=0, environ={})


def test_a_client_id_that_is_passed_over_is_named() -> None:
    with pytest.raises(ConfigurationError, match="BRINGUP_CLIENT_ID='0' is set, but a job comes from one source"):
        resolve_job(jobs="a:1,b:2", environ={"BRINGUP_CLIENT_ID": "0"})
    assert resolve_job(jobs="a:1,b:2", client_id=1, environ={"BRINGUP_CLIENT_ID": "0"}).client_id == 1
    assert resolve_job(jobs="a:1", environ={"BRINGUP_CLIENT_ID": "0"}).num_clients == 1
