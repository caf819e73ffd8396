"""Interruptions of a bring-up that blocks, at moments that a signal seldom finds."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import Any

import pytest

import bringup.sync
from bringup.runtime.client.active import ACTIVE, ActiveClient
from bringup.runtime.client.client import Client
from bringup.runtime.client.process_client import ProcessClient


@pytest.mark.parametrize("begins_first", [True, False], ids=["the thread runs", "the thread does not run yet"])
def test_ctrl_c_while_the_thread_starts_leaves_nothing_behind(
    begins_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, late = threading.Thread.start, list[threading.Thread]()

    def interrupted_start(thread: threading.Thread) -> None:
        if thread.name != "bringup-client-0" or late:
            return start(thread)
        late.append(thread)
        if begins_first:
            start(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted_start)
    with pytest.raises(KeyboardInterrupt):
        bringup.sync.initialize("SIM", num_clients=1)
    assert ACTIVE.get() is None
    if not begins_first:
        start(late[0])
    late[0].join(10)
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("bringup")] == []
    with bringup.sync.initialize("SIM", num_clients=1) as system:
        assert system.num_clients == 1


def test_ctrl_c_before_the_system_is_returned_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(system: bringup.sync.SyncSystem, client: Client) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bringup.sync.SyncSystem, "__init__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bringup.sync.initialize("SIM", num_clients=1)
    assert ACTIVE.get() is None


def test_a_reset_replaces_a_client_that_another_thread_has_brought_up_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    claim, others = ActiveClient.claim, list[bringup.sync.SyncSystem]()
    begun: list[bool] = []

    def late_claim(self: ActiveClient, client: Client) -> None:
        if not begun:
            begun.append(True)
            others.append(bringup.sync.initialize("SIM", num_clients=1))
        claim(self, client)

    monkeypatch.setattr(ActiveClient, "claim", late_claim)
    with bringup.sync.initialize("SIM", num_clients=1, reset=True) as system:
        assert bringup.sync.current().job_id == system.job_id != others[0].job_id
        with pytest.raises(bringup.NotInitializedError):
            others[0].barrier("it has been shut down")


def test_sigterm_does_not_wait_for_the_call_that_it_interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    system = bringup.sync.initialize("SIM", num_clients=1)
    seconds = list[float]()

    def interrupted_hand_over(coroutine: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> Any:
        client = ACTIVE.get()
        assert isinstance(client, ProcessClient)
        began = time.monotonic()
        client.at_termination()
        seconds.append(time.monotonic() - began)
        raise KeyboardInterrupt("in place of the process's end")

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", interrupted_hand_over)
    with pytest.raises(KeyboardInterrupt):
        system.barrier("interrupted")
    assert seconds[0] < 2.5
    system.shutdown()
