"""SIGTERM in a process that is a client, and in its children."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from bringup.runtime.client.signals import TerminationNotice


@pytest.fixture
def noticed() -> Iterator[list[int]]:
    """The processes that were told of a SIGTERM, which ends none of them then."""
    pids: list[int] = []
    notice = TerminationNotice(lambda: pids.append(os.getpid()) is None)
    notice.install()
    yield pids
    notice.remove()


def test_a_child_that_is_ended_as_soon_as_it_is_forked_ends(noticed: list[int]) -> None:
    children = [_forked_and_ended() for _ in range(20)]
    endings = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    assert endings == [-signal.SIGTERM] * len(children)
    signal.raise_signal(signal.SIGTERM)
    assert noticed == [os.getpid()]
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_signal_that_the_program_holds_back_stays_so_in_its_child(noticed: list[int]) -> None:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
    try:
        child = os.fork()
        if child == 0:
            os._exit(0 if signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, ()) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def test_a_handler_of_the_programs_own_is_its_children_s_too() -> None:
    handler = signal.signal(signal.SIGTERM, lambda number, frame: os._exit(7))
    try:
        child = os.fork()
        if child == 0:
            signal.raise_signal(signal.SIGTERM)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    finally:
        signal.signal(signal.SIGTERM, handler)


def _forked_and_ended() -> int:
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        while True:
            signal.pause()
    os.kill(child, signal.SIGTERM)
    return child
