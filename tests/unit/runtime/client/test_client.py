"""The states of one client, without a process around it: no active slot, no signals, no other clients."""

from __future__ import annotations

import os
import threading

import pytest

from bringup.errors import NotInitializedError
from bringup.runtime.client.client import Client, State
from bringup.runtime.configuration.plan import make_plan
from bringup.runtime.configuration.request import Request
from bringup.runtime.drivers.latch import blocked

PATIENCE = 30.0


def client() -> Client:
    return Client(make_plan(Request("SIM", num_clients=1), {}))


def started() -> Client:
    one = client()
    one.start()
    assert one.up.wait_blocking(PATIENCE)
    return one


def test_a_client_that_leaves_goes_through_all_states() -> None:
    one = client()
    assert one.state is State.NEW
    one.start()
    assert one.state in (State.STARTING, State.UP)
    assert one.up.wait_blocking(PATIENCE)
    assert (one.state, one.is_over) == (State.UP, False)
    one.leave()
    assert one.ended.wait_blocking(PATIENCE)
    assert one.state in (State.ENDED, State.OVER)
    blocked(one.finish())
    assert (one.state, one.is_over, one.failure) == (State.OVER, True, None)
    with pytest.raises(NotInitializedError, match="was shut down"):
        raise one.end_error()


def test_a_client_that_is_aborted_ends_with_the_error_as_its_cause() -> None:
    one = started()
    one.abort(ValueError("bad batch"))
    blocked(one.finish())
    assert one.state is State.OVER
    for error in (one.end_error(), one.failed.value):
        assert "ValueError: bad batch" in str(error)
    assert one.end_error() is not one.end_error()
    assert one.failure is None, "it is no failure of the job"


def test_an_abort_before_the_start_is_not_lost() -> None:
    one = client()
    one.abort(KeyboardInterrupt("early"))
    one.start()
    blocked(one.finish())
    assert (one.state, one.up.value) == (State.OVER, None)
    assert "KeyboardInterrupt: early" in str(one.end_error())


def test_a_client_may_be_aborted_in_any_state_and_more_than_once() -> None:
    one = started()
    for _ in range(2):
        one.abort(ValueError("again"))
    blocked(one.finish())
    one.abort(ValueError("too late"))
    one.leave()
    assert "again" in str(one.end_error())


def test_calls_run_on_the_loop_of_the_client_until_it_has_ended() -> None:
    one = started()

    async def thread_name() -> str:
        return threading.current_thread().name

    assert one.submit(thread_name).result(PATIENCE) == "bringup-client-0"
    one.leave()
    blocked(one.finish())
    with pytest.raises(NotInitializedError, match="was shut down"):
        one.submit(thread_name)


def test_in_a_forked_child_a_client_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    one = started()
    parent = os.getpid()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: parent + 1)
        assert (one.state, one.is_over, one.is_forked) == (State.FORKED, True, True)
        assert f"forked from process {parent}" in str(one.end_error())
        one.abort(ValueError("not mine"))
        one.leave()
        blocked(one.finish())
    assert one.state is State.UP
    one.leave()
    blocked(one.finish())
