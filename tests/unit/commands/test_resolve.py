"""`bringup resolve` as a person and a script see it."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bringup.commands.resolve import resolve
from bringup.runtime.configuration.options import Options
from bringup.runtime.configuration.token_files import write_token_file
from bringup.transport.security.token import Token

FAMILIES = ("BRINGUP_", "DTENSOR_", "KERAS_DISTRIBUTION_", "JAX_")
JOBS = "localhost:10000,localhost:10001,localhost:10002,localhost:10003"


def run(*arguments: str, **environ: str) -> Result:
    # The runner adds to the environment of the tests, which may have a job of its own.
    hidden: dict[str, str | None] = {name: None for name in os.environ if name.startswith(FAMILIES)}
    return CliRunner().invoke(resolve, arguments, env=hidden | environ | {"COLUMNS": "120"})


def test_json_of_a_job() -> None:
    result = run("--json", DTENSOR_JOBS=JOBS, DTENSOR_CLIENT_ID="2")
    assert (result.exit_code, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    considered = found.pop("considered")
    assert found == {
        "source": "DTENSOR_*",
        "jobs": JOBS.split(","),
        "coordinator_address": "localhost:10000",
        "num_clients": 4,
        "client_id": 2,
        "local_client_id": None,
        "job_name": "worker",
    }
    assert [one["source"] for one in considered][:3] == ["arguments", "BRINGUP_*", "DTENSOR_*"]


def test_json_of_local_mode() -> None:
    found = json.loads(run("--json").stdout)
    assert (found["source"], found["jobs"], found["coordinator_address"]) == ("local mode", None, None)


def test_the_table_marks_this_client_and_says_where_all_came_from() -> None:
    result = run(DTENSOR_JOBS=JOBS, DTENSOR_CLIENT_ID="2")
    assert (result.exit_code, result.stderr) == (0, "")
    marked = [line for line in result.stdout.splitlines() if "this client" in line]
    assert len(marked) == 1
    assert "localhost:10002" in marked[0]
    for part in (*JOBS.split(","), "DTENSOR_CLIENT_ID", "the length of DTENSOR_JOBS", "BRINGUP_JOBS is not set"):
        assert part in result.stdout


def test_addresses_in_brackets_are_shown_whole() -> None:
    result = run("--jobs", "[::1]:9000,[::1]:9001", "--client-id", "1")
    assert "[::1]:9000" in result.stdout
    assert "[::1]:9001" in result.stdout


def test_arguments_can_be_tried() -> None:
    arguments = ("--jobs", "h0:9000", "--num-clients", "3", "--client-id", "2", "--job-name", "trainer")
    found = json.loads(run("--json", *arguments).stdout)
    assert (found["source"], found["num_clients"], found["client_id"]) == ("arguments", 3, 2)
    assert (found["job_name"], found["jobs"]) == ("trainer", None)
    table = run(*arguments).stdout
    assert "known once it has registered" in table
    assert "this client" in table


def test_a_large_job_is_shown_in_short() -> None:
    jobs = ",".join(f"h{client}:9000" for client in range(1000))
    table = run("--jobs", jobs, "--client-id", "999").stdout
    assert "h999:9000" in table
    assert "and 967 more" in table
    assert len([line for line in table.splitlines() if ":9000" in line]) < 40


def test_local_mode_has_no_table_of_clients() -> None:
    result = run()
    assert result.exit_code == 0
    assert "local mode" in result.stdout
    assert "this client" not in result.stdout


@pytest.mark.parametrize("arguments", [(), ("--json",)])
@pytest.mark.parametrize(
    ("environ", "part"),
    [
        ({"DTENSOR_JOBS": "a:1,b:2", "DTENSOR_CLIENT_ID": "7"}, "DTENSOR_CLIENT_ID='7'"),
        ({"JAX_COORDINATOR_ADDRESS": "a:1"}, "JAX_PROCESS_ID"),
        ({"BRINGUP_JOBS": "localhost"}, "has no port"),
        ({"BRINGUP_HEARTBEAT_TIMEOUT": "ten"}, "BRINGUP_HEARTBEAT_TIMEOUT='ten'"),
    ],
)
def test_errors_have_status_2_and_stand_on_stderr(
    arguments: tuple[str, ...], environ: dict[str, str], part: str
) -> None:
    result = run(*arguments, **environ)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("bringup: ")
    assert part in result.stderr
    assert "Traceback" not in result.stderr


def test_a_client_id_that_is_no_number_has_status_2() -> None:
    result = run("--client-id", "x")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--client-id" in result.stderr


def test_every_option_is_listed_with_its_value_and_origin() -> None:
    table = run(BRINGUP_RING_PORT="9900").stdout
    rows = {cells[1]: cells[2:] for line in table.splitlines() if len(cells := line.replace("│", " | ").split()) > 2}
    for field in dataclasses.fields(Options):
        assert any(field.name in line for line in table.splitlines()), field.name
    assert rows["ring_port"] == ["|", "9900", "|", "BRINGUP_RING_PORT", "|"]
    assert rows["heartbeat_timeout"] == ["|", "10.0", "|", "default", "|"]
    found = json.loads(run("--json", "--options", BRINGUP_RING_PORT="9900").stdout)["options"]
    assert found["ring_port"] == {"value": 9900, "from": "BRINGUP_RING_PORT"}
    assert found.keys() == {field.name for field in dataclasses.fields(Options)}


def test_a_misspelt_variable_is_named_with_the_closest_that_there_is() -> None:
    result = run(BRINGUP_HEARTBEAT_TIMOUT="3")
    assert result.exit_code == 0
    assert "BRINGUP_HEARTBEAT_TIMOUT" in result.stderr
    assert "BRINGUP_HEARTBEAT_TIMEOUT" in result.stderr


def test_the_secret_is_shown_by_its_fingerprint_and_its_origin(tmp_path: Path) -> None:
    token = Token.random()
    write_token_file(tmp_path / "token", token)
    arguments = ("--jobs", "h0:9000,h1:9000", "--client-id", "1")
    for environ in ({"BRINGUP_TOKEN_FILE": str(tmp_path / "token")}, {"BRINGUP_TOKEN": token.to_text()}):
        found = json.loads(run(*arguments, "--json", "--options", **environ).stdout)["security"]
        (name,) = environ
        assert found["value"] == f"mutual TLS, token with fingerprint {token.fingerprint}"
        assert found["from"].startswith(name)
        table = run(*arguments, **environ)
        assert token.fingerprint in table.stdout
        assert token.to_text()[:16] not in table.output + str(found)


def test_a_job_without_a_secret_is_shown_with_the_reason_for_which_it_would_not_start() -> None:
    result = run("--jobs", "h0:9000,h1:9000", "--client-id", "1", "--json", "--options")
    assert result.exit_code == 0
    found = json.loads(result.stdout)["security"]
    assert found["value"] == "refused"
    assert "`bringup token --file PATH`" in found["from"]
    assert "none: plain TCP" in run("--jobs", "h0:9000,h1:9000", "--client-id", "1", BRINGUP_INSECURE="1").stdout
