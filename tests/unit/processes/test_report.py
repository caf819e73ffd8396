"""Reports of clients to their launchers, and errors as values for JSON."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

import pytest

from bringup import DeviceFailedError, PeerFailedError, RendezvousTimeoutError
from bringup.processes.report import ClientState, ErrorReport, culprits_of, error_to_json, torch_error

TRACE = 'Traceback (most recent call last):\n  File "train.py", line 30, in <module>\nValueError: bad batch 31\n'


def chained(errors: Sequence[BaseException]) -> BaseException:
    """The last of some exceptions, each raised while the one before it was handled."""
    for earlier, later in itertools.pairwise(errors):
        later.__context__ = earlier
    return errors[-1]


PEER = PeerFailedError("client 2 failed", client_id=2, cause="process died")


@pytest.mark.parametrize(
    ("error", "failure", "culprits"),
    [
        (ValueError("own"), None, ()),
        (PEER, None, (2,)),
        (chained([PEER, KeyError("in the handler")]), None, (2,)),
        (ExceptionGroup("tasks", [ValueError("x"), PEER]), None, (2,)),
        (RuntimeError("NCCL: connection reset"), PEER, (2,)),
        (PeerFailedError("stalled", client_id=1, cause="no progress"), None, ()),
        (DeviceFailedError("ECC", client_id=1, cause="ECC"), None, ()),
        (RendezvousTimeoutError("late", missing={1: "a", 3: "b"}), None, (3,)),
    ],
)
def test_whose_failure_an_exception_comes_from(
    error: BaseException, failure: BaseException | None, culprits: tuple[int, ...]
) -> None:
    assert culprits_of(error, 1, failure)[0] == culprits


def test_reports_come_back_as_they_were_and_nonsense_as_nothing() -> None:
    own = ErrorReport("host-a", "ValueError", "bad batch 31", TRACE, (), False, "", 10.7)
    report = ErrorReport.of_error(PEER, client_id=1, host="h", trace=TRACE, failure=None, at=10.7)
    assert ErrorReport.of_json(report.to_json()) == report
    assert torch_error(report)["message"]["extraInfo"] == {"py_callstack": TRACE, "timestamp": "11"}
    assert torch_error(own)["message"]["extraInfo"]["timestamp"] == "10"
    state = ClientState("up", ("127.0.0.1:1",))
    assert ClientState.of_json(state.to_json()) == state
    for nonsense in ("", "[]", "{}", '{"bringup": {"culprits": 1}}', "\0"):
        assert ErrorReport.of_json(nonsense) is None
        assert ClientState.of_json(nonsense) is None


def test_an_error_is_a_value_for_json() -> None:
    found = json.loads(json.dumps(error_to_json(RendezvousTimeoutError("late", missing={1: "a"}))))
    assert (found["error"], found["text"], found["attributes"]["missing"]) == (
        "RendezvousTimeoutError",
        "late",
        {"1": "a"},
    )
    assert found["bases"][0] == "RendezvousTimeoutError"
    assert {"BringupError", "Exception"} <= set(found["bases"])
    assert error_to_json(KeyError("k"))["attributes"] == {}
