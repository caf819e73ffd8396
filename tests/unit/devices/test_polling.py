"""Polling of devices with a time-out."""

from __future__ import annotations

import threading

from bringup.devices.polling import wait_until


def test_waiting_asks_until_the_answer_is_yes() -> None:
    answers = iter([False, False, True])
    assert wait_until(lambda: next(answers), 60.0, threading.Event())


def test_waiting_ends_in_time_or_when_it_is_interrupted() -> None:
    assert not wait_until(lambda: False, 0.0, threading.Event())
    interrupted = threading.Event()
    interrupted.set()
    assert not wait_until(lambda: False, 60.0, interrupted)
