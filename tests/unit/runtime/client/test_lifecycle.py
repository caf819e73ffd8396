"""Interruptions of a bring-up that blocks, at moments that a signal seldom finds."""

from __future__ import annotations

import threading

import pytest

import bringup.sync
from bringup.runtime.client.active import ACTIVE


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
