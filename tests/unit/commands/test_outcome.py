"""Whose failure ended a job, by what its clients said and how their processes ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bringup.commands.launcher import grace_of
from bringup.commands.outcome import Ended, Outcome, describe_absence, describe_failure, root_of
from bringup.processes.report import ErrorReport
from bringup.runtime.configuration.options import Options
from bringup.runtime.drivers.latch import Latch

STILL_THERE = "it was still in initialize(), and ended with status 0"
TRACE = """Traceback (most recent call last):
  File "train.py", line 30, in <module>
    step(31)
  File "train.py", line 12, in step
    raise ValueError("bad batch 31")
ValueError: bad batch 31
"""


def ended(client_id: int, returncode: int = 1, report: ErrorReport | None = None, state: str = "up") -> Ended:
    return Ended(client_id, 100 + client_id, returncode, state=state, report=report)


def own(text: str = "bad batch 31", trace: str = TRACE, at: float = 10.0) -> ErrorReport:
    return ErrorReport("host-a", "ValueError", text, trace, (), False, "", at)


def blames(*culprits: int, cause: str = "process died", missing: bool = False) -> ErrorReport:
    error = "RendezvousTimeoutError" if missing else "PeerFailedError"
    return ErrorReport("host-a", error, f"client {culprits} failed", "", culprits, missing, cause, 5.0)


def asked(client_id: int) -> Ended:
    return replace(ended(client_id, -15), was_asked=True)


def said(*all_ended: Ended, first: int = 0) -> tuple[int, list[str]]:
    as_seen = replace(all_ended[first], last_lines=())  # before its output had come to its end
    root = root_of(as_seen, all_ended)
    return root.client_id, describe_failure(root, all_ended, "here")


def test_the_first_to_exit_is_not_the_root_where_it_says_whose_failure_it_met() -> None:
    root, lines = said(ended(3, report=blames(2)), ended(0, report=blames(2)), ended(2, report=own()), asked(1))
    assert root == 2
    assert lines == [
        "client 2 (process 102 on host-a) failed first: ValueError: bad batch 31",
        *TRACE.splitlines()[1:-1],
        "clients 0, 3 failed because of it (PeerFailedError); client 1 was ended because of it",
    ]


def test_blame_is_followed_to_who_blames_nobody() -> None:
    root, _ = said(ended(0, report=blames(1)), ended(1, report=blames(2)), ended(3, report=blames(1)), ended(2, -9))
    assert root == 2


def test_where_all_blame_one_another_most_votes_decide_and_then_who_ended_first() -> None:
    assert said(ended(0, report=blames(1)), ended(1, report=blames(0)), ended(2, report=blames(0)))[0] == 0
    assert said(ended(1, report=blames(0)), ended(0, report=blames(1)))[0] == 1


def test_of_several_that_failed_by_themselves_the_first_is_the_root() -> None:
    root, lines = said(ended(1, report=own("late", at=11.0)), ended(0, report=own("early", at=10.0)), ended(2, 3))
    assert root == 0
    assert lines[-1] == "client 1 failed, too, with ValueError: late; client 2 failed, too, with status 3"


def test_one_that_all_blame_and_that_blames_another_is_described_in_their_words() -> None:
    left = "it is leaving the job (shutdown) after collective 7, and client 0 waits in collective 8"
    _, lines = said(ended(1, report=blames(2)), ended(0, report=blames(1, cause=left)), ended(2, report=blames(1)))
    assert lines[0] == f"client 1 (process 101 on host-a) failed first: {left}"


@pytest.mark.parametrize(
    ("culprit", "others", "first_line"),
    [
        (ended(2, -9), [ended(0, report=blames(2))], "client 2 (process 102 on here) failed first, with SIGKILL"),
        (asked(2), [ended(0, report=blames(2, cause="late"))], "client 2 (process 102 on here) failed first: late"),
        (
            replace(asked(2), state=""),
            [ended(0, report=blames(2, missing=True))],
            "client 2 (process 102 on here) did not come to the job: it had not called initialize()",
        ),
        (
            ended(2, 0, state="starting"),
            [ended(0, report=blames(2, missing=True))],
            f"client 2 (process 102 on here) did not come to the job: {STILL_THERE}",
        ),
    ],
)
def test_a_root_that_says_nothing_is_described_by_its_end_and_by_what_others_say(
    culprit: Ended, others: list[Ended], first_line: str
) -> None:
    assert said(*others, culprit)[1][0] == first_line


def test_the_last_lines_of_an_exit_are_what_it_wrote() -> None:
    silent = replace(ended(1, 2), last_lines=("usage: train.py", "no such flag"))
    assert said(silent)[1][:3] == [
        "client 1 (process 101 on here) failed first, with status 2",
        "  usage: train.py",
        "  no such flag",
    ]


def test_clients_that_left_in_order_blame_nobody() -> None:
    orderly = [ended(client_id, 75, state="left") for client_id in (2, 0, 1)]
    assert said(*orderly)[1] == ["clients 0-2 left the job in order, and ended with status 75"]


def test_clients_that_are_gone_before_the_job_came_up_are_named() -> None:
    first, second = describe_absence([ended(1, 0, state=""), ended(2, 0, state="")], [0], "here")
    assert first == (
        "clients 1-2 (processes 101, 102 on here) ended with status 0 before initialize(), "
        "so that the job cannot come up"
    )
    assert second == "client 0 waited for them in vain, and was ended"


def outcome(*all_ended: Ended, root: int, first: int = 0, signal: int | None = None) -> int:
    chosen = next(one for one in all_ended if one.client_id == root)
    return Outcome(all_ended, all_ended[first], signal, chosen).exit_status


def test_the_exit_status_is_that_of_the_root() -> None:
    assert outcome(ended(0, 1), ended(2, -9), root=2) == 137
    assert outcome(ended(0, 3), asked(2), root=2) == 3, "not that of the signal by which the launcher ended it"
    assert outcome(ended(0, 3), ended(2, 0), root=2) == 3, "a failed job is no success"
    assert Outcome((), None, 2).exit_status == 130
    assert Outcome((ended(0, 0),), None, None).exit_status == 0
    assert Outcome((ended(0, 0),), None, None, absent=(0,)).exit_status == 1


def test_what_watches_a_latch_is_called_before_anybody_else_hears() -> None:
    latch: Latch[int] = Latch()
    seen: list[tuple[int, bool]] = []
    latch.on_set(lambda value: seen.append((value, latch.is_set)))
    assert latch.set(7)
    assert not latch.set(8)
    assert seen == [(7, False)]
    assert latch.value == 7


@pytest.mark.parametrize(("environ", "timeout"), [({}, 30.0), ({"BRINGUP_SHUTDOWN_TIMEOUT": "90"}, 90.0)])
def test_clients_that_leave_in_order_are_not_killed_before_they_have(environ: dict[str, str], timeout: float) -> None:
    assert Options.resolve(None, {}, environ).shutdown_timeout == timeout
    assert grace_of(environ) > timeout


def test_settings_that_are_wrong_are_the_clients_to_complain_of() -> None:
    assert grace_of({"BRINGUP_SHUTDOWN_TIMEOUT": "soon"}) > Options().shutdown_timeout
