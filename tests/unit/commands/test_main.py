"""The command `bringup` itself: its list of commands, and how errors reach a person."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from bringup import __version__
from bringup.commands import main as command_line
from bringup.errors import BringupError, ConfigurationError

COMMANDS = ("run", "demo", "resolve", "token", "topology", "bench")
HEAVY = ("numpy", "grpc", "rich", "aiohttp", "asyncio")


def test_help_names_all_commands_and_imports_none_of_them() -> None:
    code = (
        "import sys; from bringup.commands.main import cli; cli(['--help'], standalone_mode=False);"
        f"print(*[name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr.strip() == ""
    assert [line.split()[0] for line in done.stdout.split("Commands:")[1].strip().splitlines()] == list(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_loads_and_explains_itself(command: str) -> None:
    result = CliRunner().invoke(command_line.cli, [command, "--help"])
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: cli {command}")


def test_python_m_bringup_is_the_command() -> None:
    command = [sys.executable, "-P", "-m", "bringup", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == f"bringup, version {__version__}"


@pytest.mark.parametrize(
    ("error", "status"), [(ConfigurationError("it is wrong"), 2), (BringupError("it is wrong"), 1)]
)
def test_an_error_is_one_line_and_a_status(
    error: BringupError, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(command_line, "cli", fail)
    with pytest.raises(SystemExit) as exit_:
        command_line.main()
    assert exit_.value.code == status
    assert capsys.readouterr() == ("", "bringup: it is wrong\n")


def test_a_command_that_cannot_be_imported_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bringup.commands.resolve", None)
    context = click.Context(command_line.cli)
    with pytest.raises(BringupError, match=r"'resolve' cannot be loaded.*Install bringup again"):
        command_line.cli.get_command(context, "resolve")
    assert command_line.cli.get_command(context, "run") is not None
