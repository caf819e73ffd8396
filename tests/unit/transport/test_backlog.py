"""Messages that wait for room: none is dropped but those that a newer one makes worthless."""

from __future__ import annotations

from bringup.transport.backlog import Backlog

MIB = 1024 * 1024


def taken(backlog: Backlog) -> list[tuple[bytes, bool]]:
    return [backlog.take() for _ in range(len(backlog))]


def test_the_newest_of_the_latest_stays_and_all_others_in_order() -> None:
    backlog = Backlog()
    for message, is_latest in [(b"1", True), (b"a", False), (b"2", True), (b"b", False), (b"3", True), (b"c", False)]:
        assert backlog.put(message, is_latest=is_latest)
    assert taken(backlog) == [(b"a", False), (b"b", False), (b"3", True), (b"c", False)]
    assert not backlog


def test_there_is_room_for_some_of_the_largest_messages_and_again_once_they_left() -> None:
    backlog = Backlog()
    for _ in range(2):
        assert [backlog.put(bytes(MIB), is_latest=False) for _ in range(6)] == [True] * 4 + [False] * 2
        assert not backlog.put(b"x", is_latest=True)
        assert len(taken(backlog)) == 4


def test_a_replaced_message_takes_no_room() -> None:
    backlog = Backlog()
    assert all(backlog.put(bytes(MIB), is_latest=True) for _ in range(100))
    assert backlog.put(bytes(3 * MIB), is_latest=False)
    assert not backlog.put(b"x", is_latest=False)
