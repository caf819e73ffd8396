"""The log of changes, read by clients that say up to where they know it."""

from __future__ import annotations

import random

from bringup.runtime.machines.coordinator.change_log import ChangeLog


def log_of(*client_ids: int) -> ChangeLog:
    log = ChangeLog()
    for client_id in client_ids:
        log.add(client_id)
    return log


def test_a_reader_is_told_each_member_once_by_its_last_change() -> None:
    log = log_of(4, 1, 4, 2)
    assert log.after(0, 9) == ([1, 4, 2], 4)
    assert log.after(2, 9) == ([4, 2], 4)
    assert log.after(4, 9) == ([], 4)
    log.add(1)
    assert log.after(4, 9) == ([1], 5)


def test_a_reader_who_asks_again_is_told_again() -> None:
    log = log_of(1, 2)
    assert log.after(1, 9) == log.after(1, 9) == ([2], 2)


def test_what_is_told_at_once_is_bounded_and_goes_on_where_it_ended() -> None:
    log = log_of(*range(10))
    told, seen = log.after(0, 4)
    assert (told, seen) == ([0, 1, 2, 3], 4)
    assert log.after(seen, 4) == ([4, 5, 6, 7], 8)
    assert log.after(8, 4) == ([8, 9], 10)


def test_a_reader_of_what_never_was_is_told_nothing() -> None:
    assert log_of(1).after(2**40, 4) == ([], 2**40)


def test_every_reader_ends_up_with_the_last_change_of_all_whatever_the_order() -> None:
    chance = random.Random(5)
    log, known, seen, changes = ChangeLog(), {}, 0, {}
    for step in range(1000):
        client_id = chance.randrange(20)
        log.add(client_id)
        changes[client_id] = step
        if chance.random() < 0.2:
            told, seen = log.after(seen, 3)
            known.update({c: changes[c] for c in told})
    while known != changes:
        told, seen = log.after(seen, 3)
        assert told
        known.update({c: changes[c] for c in told})
    assert log.after(seen, 3) == ([], seen)


def test_what_was_overtaken_takes_no_room() -> None:
    log = log_of(*[number % 5 for number in range(10_000)])
    assert len(log._numbers) <= 12


def test_what_was_overtaken_costs_a_reader_nothing() -> None:
    log = log_of(*range(1000), *range(1000))
    assert log.after(0, 3) == ([0, 1, 2], 1003)
    assert log._following[0] == 1000
