"""The runner of all bench commands, with a scenario that measures nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from rich.table import Table

from bringup.commands.bench.libraries import BRINGUP, Library
from bringup.commands.bench.runner import Case, Entrant, Hosts, ProcessFailed, run_process, run_scenario

ABSENT = Library("nonesuch", ("no_such_module",), (), lambda *_: None)
ENTRANTS = [Entrant(BRINGUP, "no:program"), Entrant(ABSENT, "no:program")]


class Counting:
    """Two cases in turn, the second with a problem."""

    title = "two cases"
    facts = {"runs": 2}  # noqa: RUF012 - a property of the protocol

    def __init__(self, is_sound: bool) -> None:
        self.is_sound = is_sound
        self.entrants: list[str] = []
        self.samples: list[str] = []

    def cases(self, entrants: Sequence[Entrant], hosts: Hosts) -> list[Case]:
        self.entrants = [entrant.library.name for entrant in entrants]
        return [Case("first", lambda: self.take("first")), Case("second", lambda: self.take("second", "[b]ad"))] * 2

    def take(self, name: str, *problems: str) -> Iterable[str]:
        self.samples.append(name)
        return problems

    def as_object(self) -> dict[str, Any]:
        return {"samples": self.samples}

    def tables(self) -> list[Table]:
        return [Table("what", title="a table")]


def test_cases_take_turns_and_problems_are_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    scenario = Counting(is_sound=True)
    run_scenario(scenario, ENTRANTS, as_json=False)
    output, errors = capsys.readouterr()
    assert scenario.samples == ["first", "second"] * 2
    # Older rich ends a progress bar that is not shown with an empty line.
    assert [line for line in errors.splitlines() if line] == ["second: [b]ad"] * 2
    assert output.startswith("two cases\n")
    assert "a table" in output


def test_a_library_that_is_not_installed_is_left_out_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    scenario = Counting(is_sound=True)
    run_scenario(scenario, ENTRANTS, as_json=True)
    output, errors = capsys.readouterr()
    found = json.loads(output)
    assert scenario.entrants == ["bringup"]
    assert found["absent"] == {"nonesuch": "the package 'no_such_module' is not installed"}
    assert (found["runs"], found["samples"]) == (2, ["first", "second"] * 2)
    assert "not measured: nonesuch: the package 'no_such_module' is not installed" in errors


def test_the_exit_status_is_1_where_a_scenario_is_not_sound() -> None:
    with pytest.raises(SystemExit) as ended:
        run_scenario(Counting(is_sound=False), as_json=False)
    assert ended.value.code == 1


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (["sh", "-c", "echo one >&2; echo two >&2; exit 3"], "failed: two"),
        (["sh", "-c", "exit 3"], "failed: no reason given"),
        (["sh", "-c", "read forever < /dev/zero"], "took more than 0.2 s"),
    ],
)
def test_a_process_that_fails_says_why(command: list[str], text: str) -> None:
    with pytest.raises(ProcessFailed) as failed:
        run_process(command, 0.2 if "took" in text else 60.0)
    assert str(failed.value) == text
