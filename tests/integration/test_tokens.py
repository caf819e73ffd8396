"""Tokens in real processes: handed over by a launcher, kept for a second job, and shown nowhere."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from bringup.runtime.configuration.token_files import read_token_file, write_token_file
from bringup.testing.job import LocalJob
from bringup.transport.security.token import Token
from bringup.transport.tcp.interfaces import free_ports

from ..lib.pki import Pki

TOKEN = Token.random()
BRINGUP = [sys.executable, "-P", "-m", "bringup"]
PYTHON = [sys.executable, "-P", "-c"]
TIMEOUT = 60.0

TELL = """
import logging, bringup.sync
logging.basicConfig(level=logging.INFO)
with bringup.sync.initialize("SIM") as system:
    print("sum", system.all_reduce([1.0])[0])
"""


def environ(**variables: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("BRINGUP_")} | variables


def run(*arguments: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*BRINGUP, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
        cwd=cwd,
        env=environ(**variables),
    )


# The command.


def test_a_token_is_printed_or_written_for_its_owner_alone(tmp_path: Path) -> None:
    first, second = (run("token").stdout for _ in range(2))
    assert Token.parse(first) != Token.parse(second)
    written = run("token", "--file", "job.token", cwd=tmp_path)
    token = read_token_file(tmp_path / "job.token")
    assert written.stdout == f"job.token: a new token, with fingerprint {token.fingerprint}\n"
    assert stat.S_IMODE((tmp_path / "job.token").stat().st_mode) == 0o600
    again = run("token", "--file", "job.token", cwd=tmp_path)
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr.startswith("bringup: --file='job.token' exists")
    assert run("token", "--file", "none/job.token", cwd=tmp_path).returncode == 2
    assert read_token_file(tmp_path / "job.token") == token


# What `bringup run` hands over.


def fingerprints(log: str) -> list[str]:
    return [line.split("<Token ")[1].split(">")[0] for line in log.splitlines() if "know each other by" in line]


def test_each_job_of_the_launcher_has_a_token_of_its_own_by_descriptor() -> None:
    seen = set()
    for _ in range(2):
        done = run("run", "-n", "2", "--", *PYTHON, TELL)
        assert set(done.stdout.splitlines()) == {"[0] sum 2.0", "[1] sum 2.0"}, done.stderr
        assert done.stderr.count("BRINGUP_TOKEN_FD=") == 2
        one, other = fingerprints(done.stderr)
        assert one == other
        seen.add(one)
    assert len(seen) == 2


def test_a_shell_hands_the_descriptor_on(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TELL)
    done = run("run", "-n", "2", "--", "sh", "-c", f"true; {sys.executable} -P train.py; exit $?", cwd=tmp_path)
    assert set(done.stdout.splitlines()) == {"[0] sum 2.0", "[1] sum 2.0"}, done.stderr


def test_a_program_that_closes_the_descriptor_is_told_of() -> None:
    wrapper = f"import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-P', '-c', {TELL!r}]).returncode)"
    done = run("run", "-n", "2", "--", *PYTHON, wrapper)
    assert done.returncode == 1
    assert "ConfigurationError: BRINGUP_TOKEN_FD='" in done.stderr
    assert "is not open for reading in this process" in done.stderr
    assert "pass_fds=(" in done.stderr


def test_a_token_that_the_user_gives_is_handed_on(tmp_path: Path) -> None:
    write_token_file(tmp_path / "token", TOKEN)
    program = f"import os; print(sorted(n for n in os.environ if 'TOKEN' in n))\n{TELL}"
    for variables, expected in (
        ({"BRINGUP_TOKEN": TOKEN.to_text()}, "['BRINGUP_TOKEN_FD']"),
        ({"BRINGUP_TOKEN_FILE": str(tmp_path / "token")}, "['BRINGUP_TOKEN_FILE']"),
    ):
        done = run("run", "-n", "2", "--", *PYTHON, program, **variables)
        assert done.stdout.count(expected) == 2, done.stderr
        assert fingerprints(done.stderr) == [TOKEN.fingerprint] * 2


def test_an_insecure_job_gets_none() -> None:
    done = run("run", "-n", "2", "--", *PYTHON, TELL, BRINGUP_INSECURE="1")
    assert done.stdout.count("sum 2.0") == 2
    assert done.stderr.count("talk without authentication or encryption (BRINGUP_INSECURE='1')") == 2


def test_a_launcher_that_was_handed_no_token_says_so_and_starts_nobody() -> None:
    done = run("run", "-n", "2", "--", "echo", "started", BRINGUP_TOKEN="12345")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("bringup: BRINGUP_TOKEN=<hidden> is not 64 hexadecimal digits, but 5 characters")


# Two jobs of one process.

TWICE = """
import os, bringup.sync
for reset in (False, False, True):
    system = bringup.sync.initialize("SIM", reset=reset)
    print("sum", system.all_reduce([1.0])[0], sorted(name for name in os.environ if "TOKEN" in name))
    if not reset:
        system.shutdown()
system = bringup.sync.initialize("SIM", reset=True)
system.shutdown()
print("done")
"""


@pytest.mark.parametrize("way", ["pipe", "variable"])
def test_a_token_that_can_be_had_once_serves_all_jobs_of_a_process(way: str) -> None:
    jobs = ",".join(f"127.0.0.1:{port}" for port in free_ports(2))
    clients = []
    for client_id in range(2):
        variables = {"BRINGUP_JOBS": jobs, "BRINGUP_CLIENT_ID": str(client_id), "BRINGUP_TOKEN": TOKEN.to_text()}
        reading, writing = os.pipe()
        if way == "pipe":
            os.write(writing, variables.pop("BRINGUP_TOKEN").encode())
            variables["BRINGUP_TOKEN_FD"] = str(reading)
        os.close(writing)
        clients.append(
            subprocess.Popen(
                [*PYTHON, TWICE],
                env=environ(**variables),
                pass_fds=(reading,),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        os.close(reading)
    left = ["BRINGUP_TOKEN_FD"] if way == "pipe" else []
    for client in clients:
        output, errors = client.communicate(timeout=TIMEOUT)
        assert output.splitlines() == [f"sum 2.0 {left}"] * 3 + ["done"], errors


# Loopback jobs.

OTHER_USER = 64321
BESIDE_ANOTHER_USER = f"""
import os, bringup.sync
if os.environ["BRINGUP_CLIENT_ID"] == "1":
    os.setgroups([])
    os.setgid({OTHER_USER})
    os.setuid({OTHER_USER})
with bringup.sync.initialize("SIM", initialization_timeout=2):
    print("up")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root, to become another user")
def test_another_user_of_this_machine_is_a_stranger() -> None:
    try:
        with LocalJob(2, command=[*PYTHON, BESIDE_ANOTHER_USER], fork=True) as job:
            job.start()
            assert job.wait() == {0: 1, 1: 1}
            assert "up" not in job.clients[0].output + job.clients[1].output
        with LocalJob(2, command=[*PYTHON, BESIDE_ANOTHER_USER], environment={"BRINGUP_INSECURE": "1"}) as job:
            job.start(fork=True)
            assert job.wait() == {0: 0, 1: 0}
    finally:
        shutil.rmtree(f"/tmp/bringup-{OTHER_USER}", ignore_errors=True)


# Certificates of the user's own.

WITH_FILES = """
import os, sys, bringup.sync
folder, client_id = sys.argv[1], os.environ["BRINGUP_CLIENT_ID"]
files = {"tls_ca": "ca.pem", "tls_cert": f"client-{client_id}.pem", "tls_key": f"client-{client_id}.key"}
paths = {name: os.path.join(folder, file) for name, file in files.items()}
with bringup.sync.initialize("SIM", **paths, tls_uri_prefix="spiffe://here/") as system:
    print("sum", system.all_reduce([1.0])[0])
"""


def test_a_job_with_certificates_of_the_users_own(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    for client_id in range(2):
        pki.issue(f"client-{client_id}", uris=(f"spiffe://here/{client_id}",))
    done = run("run", "-n", "2", "--", *PYTHON, WITH_FILES, str(tmp_path))
    assert set(done.stdout.splitlines()) == {"[0] sum 2.0", "[1] sum 2.0"}, done.stderr
    pki.issue("client-1", uris=("spiffe://there/1",))
    done = run("run", "-n", "2", "--", *PYTHON, WITH_FILES, str(tmp_path))
    assert "refused this client: its certificate has no URI that begins with spiffe://here/" in done.stderr
    (tmp_path / "client-1.key").unlink()
    done = run("run", "-n", "2", "--", *PYTHON, WITH_FILES, str(tmp_path))
    assert done.returncode == 1
    assert "ConfigurationError: " in done.stderr
    assert f"{tmp_path / 'client-1.key'}" in done.stderr


# What nobody is to see.

SHOWING = """
import asyncio, contextlib, faulthandler, gc, logging, os, sys, traceback
import bringup
logging.basicConfig(level=logging.DEBUG)
faulthandler.enable()

def show(path):
    with open(path, "rb") as file:
        print(path, file.read())

async def main():
    system = await bringup.initialize("SIM"{arguments})
    print(system, system.to_json(), system.members, vars(system), os.environ)
    for process in ("self", os.getppid()):
        show(f"/proc/{{process}}/cmdline")
    if {is_launched}:
        show("/proc/self/environ")
    for thing in gc.get_objects():  # of plans, requests, settings, options, credentials
        if str(type(thing).__module__).startswith("bringup"):
            with contextlib.suppress(AttributeError):  # of what is not made yet
                print(repr(thing))
    await system.barrier("shown")
    if system.client_id == 1:
        raise ValueError("the end")
    await system.barrier("never")

try:
    asyncio.run(main())
except BaseException as error:
    seen = traceback.TracebackException.from_exception(error, capture_locals=True)
    print("".join(seen.format()), file=sys.stderr)
    raise
"""
"""A program that writes all that it can find, and ends with an error whose traceback has local variables."""


def secret_in(text: str) -> bool:
    raw = bytes.fromhex(TOKEN.to_text())
    return any(
        shown in text.lower() for shown in (TOKEN.to_text()[:16], TOKEN.to_text()[-16:], repr(raw)[2:20].lower())
    )


def test_the_token_shows_in_no_output_of_a_job_that_the_launcher_runs() -> None:
    program = SHOWING.format(arguments="", is_launched=True)
    done = run("run", "-n", "2", "--", *PYTHON, program, BRINGUP_TOKEN=TOKEN.to_text(), GRPC_VERBOSITY="debug")
    assert done.returncode == 1
    assert "the end" in done.stderr
    assert TOKEN.fingerprint in done.stderr
    assert "[1] /proc/self/environ" in done.stdout
    assert not secret_in(done.stdout + done.stderr)


@pytest.mark.parametrize("way", ["variable", "argument", "options", "file"])
def test_the_token_shows_in_no_output_of_a_client(way: str, tmp_path: Path) -> None:
    write_token_file(tmp_path / "token", TOKEN)
    read = f"open({str(tmp_path / 'token')!r}).read()"
    arguments = {"argument": f", token={read}", "options": f", options=bringup.Options(token={read})"}.get(way, "")
    variables = {
        "variable": {"BRINGUP_TOKEN": TOKEN.to_text()},
        "file": {"BRINGUP_TOKEN_FILE": str(tmp_path / "token")},
    }.get(way, {})
    program = SHOWING.format(arguments=arguments, is_launched=False)
    with LocalJob(2, command=[*PYTHON, program], environment=variables, fork=True) as job:
        job.start()
        assert set(job.wait().values()) == {1}
        assert "the end" in job.clients[1].log
        for client in job.clients.values():
            assert TOKEN.fingerprint in client.log
            assert not secret_in(client.output + client.log)


def test_the_token_shows_in_no_error_about_it(tmp_path: Path) -> None:
    spoilt = TOKEN.to_text()[:-1] + "x"
    program = SHOWING.format(arguments=", jobs='127.0.0.1:1,127.0.0.1:2', client_id=1", is_launched=False)
    for variables in ({"BRINGUP_TOKEN": spoilt}, {"BRINGUP_TOKEN": TOKEN.to_text(), "BRINGUP_INSECURE": "1"}):
        done = subprocess.run(
            [*PYTHON, program], capture_output=True, text=True, check=False, timeout=TIMEOUT, env=environ(**variables)
        )
        assert "ConfigurationError" in done.stderr
        assert not secret_in(done.stdout + done.stderr)
    for command in ("resolve", "doctor"):
        done = run(command, BRINGUP_TOKEN=spoilt, BRINGUP_JOBS="a:1,b:1", BRINGUP_CLIENT_ID="0")
        assert not secret_in(done.stdout + done.stderr)
