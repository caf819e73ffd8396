"""Which commands a process that runs Python can become without starting an interpreter."""

from __future__ import annotations

import json
import sys

import pytest

from bringup.processes.program import PythonProgram, has_equal_start


@pytest.mark.parametrize(
    ("arguments", "code", "path", "argv"),
    [
        (["-c", "pass"], "pass", None, ("-c",)),
        (["-P", "-W", "ignore", "-c", "pass", "-P", "a b"], "pass", None, ("-c", "-P", "a b")),
        (["train.py", "--steps", "3"], None, "train.py", ("train.py", "--steps", "3")),
    ],
)
def test_code_and_files_can_be_forked(
    arguments: list[str], code: str | None, path: str | None, argv: tuple[str, ...]
) -> None:
    program = PythonProgram.of_command([sys.executable, *arguments])
    assert program is not None
    assert (program.code, program.path, program.argv) == (code, path, argv)
    assert program.orig_argv == (sys.executable, *arguments)
    assert (program.is_safe, program.warnings) == ((True, ("ignore",)) if "-W" in arguments else (False, ()))
    assert PythonProgram.of_json(json.loads(json.dumps(program.to_json()))) == program


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["/bin/sh", "-c", "true"],
        [sys.executable],
        [sys.executable, "-"],
        [sys.executable, "-c"],
        [sys.executable, "-m", "this"],
        [sys.executable, "-I", "-c", "pass"],
        [sys.executable, "-X", "dev", "train.py"],
    ],
)
def test_the_rest_takes_an_interpreter(command: list[str]) -> None:
    assert PythonProgram.of_command(command) is None


def test_an_interpreter_reads_some_variables_only_when_it_starts() -> None:
    environ = {"PYTHONPATH": "/a", "LANG": "C", "HOME": "/root", "BRINGUP_JOBS": "a:1"}
    assert has_equal_start(environ, {**environ, "HOME": "/", "BRINGUP_JOBS": "a:2"})
    for name in ("PYTHONPATH", "PYTHONHASHSEED", "LC_ALL", "LANG", "LD_PRELOAD"):
        assert not has_equal_start(environ, {**environ, name: "other"})
