"""The programs in the README run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("program", PROGRAMS, ids=["async", "sync"])
def test_a_program_runs_with_two_clients(program: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(program)
    command = [sys.executable, "-P", "-m", "bringup", "run", "-n", "2", "--", sys.executable, "train.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert {line[:4] for line in done.stdout.splitlines()} == {"[0] ", "[1] "}
    assert "[2. 4.]" in done.stdout


def test_the_commands_of_the_readme_are_there() -> None:
    scripts = Path(__file__).parents[2] / "scripts"
    for name in re.findall(r"^scripts/(\S+)", README, re.MULTILINE):
        assert (scripts / name).stat().st_mode & 0o100
