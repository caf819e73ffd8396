"""Descriptions of the end of a process, and exit statuses."""

from __future__ import annotations

import signal

import pytest

from bringup.processes.endings import describe_end, exit_status, last_lines, name_end


@pytest.mark.parametrize(
    ("returncode", "said", "name", "status"),
    [
        (0, "ended with status 0", "status 0", 0),
        (3, "ended with status 3", "status 3", 3),
        (-signal.SIGKILL, "was killed by SIGKILL", "SIGKILL", 137),
        (-60, "was killed by signal 60", "signal 60", 188),
    ],
)
def test_an_end_has_one_wording(returncode: int, said: str, name: str, status: int) -> None:
    assert (describe_end(returncode), name_end(returncode), exit_status(returncode)) == (said, name, status)


def test_the_last_lines_are_a_clause() -> None:
    assert last_lines(b"", 3) == last_lines(" \n", 3) == ""
    assert last_lines(b"one\n  two\nthr\xffee\n", 2) == " (two / thr\ufffdee)"
