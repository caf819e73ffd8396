"""`bringup topology --job`: the picture of a job that runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bringup.runtime.configuration.token_files import write_token_file
from bringup.testing.job import LocalJob
from bringup.transport.security.token import Token
from bringup.transport.tcp.interfaces import free_ports


def topology(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "bringup", "topology", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, **environ}
    )


def test_the_topology_of_a_job_is_drawn_while_the_job_goes_on() -> None:
    with LocalJob(2, environment={"BRINGUP_SIM_TOPOLOGY": "v4:2x2x2"}) as job:
        job.start()
        facts = job.initialize(device_type="SIM")
        done = topology("--job", job.jobs[0], "--json")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert told["device_coordinates"] == facts[0]["topology"]["device_coordinates"]
        drawn = topology("--job", job.jobs[0])
        assert "16 devices" in drawn.stdout
        assert [call.value() for call in job.call("all_reduce", array=[1])] == [[2]] * 2


def test_a_job_that_has_none_to_tell_says_why() -> None:
    with LocalJob(2) as job:
        job.start([0])
        coming = job.call("initialize", [0], device_type="CPU", num_logical_cpu_devices=1)
        job.clients[0].call("reach", phases=["rendezvous"]).value()
        early = topology("--job", job.jobs[0])
        job.start([1])
        coming += job.call("initialize", [1], device_type="CPU", num_logical_cpu_devices=1)
        for call in coming:
            call.value()
        late = topology("--job", job.jobs[0])
    assert (early.returncode, late.returncode) == (2, 2)
    assert "job 'worker' is not up yet" in early.stderr
    assert "the devices of job 'worker' have no location" in late.stderr


def test_a_job_with_a_token_of_its_own_tells_those_who_have_it(tmp_path: Path) -> None:
    path = tmp_path / "token"
    write_token_file(path, Token.random())
    secret = {"BRINGUP_TOKEN_FILE": str(path)}
    with LocalJob(2, environment={"BRINGUP_SIM_TOPOLOGY": "v4:2x2x2", **secret}) as job:
        job.initialize(device_type="SIM")
        assert topology("--job", job.jobs[0], **secret).returncode == 0
        for wrong in ({}, {"BRINGUP_INSECURE": "1"}):
            done = topology("--job", job.jobs[0], **wrong)
            assert (done.returncode, done.stdout) == (1, "")
            assert "is not trusted: it " in done.stderr
        assert "server name" not in job.clients[0].log, "a stranger can write there"
    done = topology("--job", "node-0:9000")
    assert done.returncode == 2
    assert "--job='node-0:9000' is not on this machine" in done.stderr
    assert "BRINGUP_TOKEN_FILE=PATH" in done.stderr


@pytest.mark.parametrize("given", ["nonsense", ":0"])
def test_what_is_no_address_is_refused(given: str) -> None:
    done = topology("--job", given)
    assert done.returncode == 2
    assert f"--job={given!r} is not the host:port of a coordinator" in done.stderr


def test_where_nobody_listens_that_is_said() -> None:
    (port,) = free_ports(1)
    done = topology("--job", f"127.0.0.1:{port}")
    assert done.returncode != 0
    assert f"the coordinator on 127.0.0.1:{port} did not answer within 5 s" in done.stderr
    assert "refused" in done.stderr
    assert "Traceback" not in done.stderr
