"""The accepting side of sessions, step by step."""

from __future__ import annotations

import pytest

from bringup.runtime.machines.session.effects import Began, Drop, Ended, Finish, Flushed, Resumed, TableClosed
from bringup.runtime.machines.session.limits import (
    ACKNOWLEDGE_EVERY,
    END_TIMEOUT,
    ENDED_KEPT_MAX,
    LATECOMERS_TIMEOUT,
    REGISTRATION_TIMEOUT,
    SURVIVORS_TIMEOUT,
    UNTOUCHED_KEPT_MAX,
    Ending,
)
from bringup.runtime.machines.session.table import SessionTable
from bringup.transport.wire.session_messages import (
    Acknowledge,
    EndSession,
    OpenSession,
    SessionMessage,
    SessionOpened,
    SessionRefused,
)

HEARTBEAT_TIMEOUT = 10.0


def make(kept_max: int = 100) -> SessionTable[str, str]:
    return SessionTable(kept_max, HEARTBEAT_TIMEOUT)


def written(table: SessionTable[str, str], connection: int) -> list[str | SessionMessage]:
    out = []
    while (message := table.next_to_send(connection)) is not None:
        out.append(message)
    return out


def join(table: SessionTable[str, str], key: str = "k") -> tuple[int, int]:
    """Return a new connection, and the session that it has begun."""
    connection = table.connected(0.0)
    (began,) = table.open(connection, key, OpenSession(1, 0, is_new=True))
    assert isinstance(began, Began)
    return connection, began.session


def test_a_new_session_needs_no_answer() -> None:
    table = make()
    connection, session = join(table)
    assert written(table, connection) == []
    assert table.take(connection) == session
    table.put(session, "x")
    assert written(table, connection) == ["x"]


def test_a_session_whose_first_connection_was_lost_on_its_way_begins_with_the_second() -> None:
    table = make()
    connection = table.connected(0.0)
    assert table.open(connection, "k", OpenSession(1, 0)) == [Began(1)]
    assert written(table, connection) == [SessionOpened(0)]


def test_a_lost_session_is_resumed_and_what_the_client_lacks_sent_again() -> None:
    table = make()
    first, session = join(table)
    table.take(first)
    table.put(session, "x")
    table.put(session, "y")
    written(table, first)
    assert table.lost(first, "it broke") == [Ended(session, "it broke", is_settled=False)]
    table.put(session, "z")
    second = table.connected(1.0)
    assert table.open(second, "k", OpenSession(1, 1)) == [Resumed(session)]
    assert written(table, second) == [SessionOpened(1), "y", "z"]


def test_another_connection_takes_over_from_the_present_one() -> None:
    table = make()
    first, session = join(table)
    second = table.connected(1.0)
    assert table.open(second, "k", OpenSession(1, 0)) == [Drop(first), Resumed(session)]
    table.put(session, "x")
    assert written(table, first) == []
    assert written(table, second) == [SessionOpened(0), "x"]
    assert table.take(first) == 0
    assert table.lost(first, "it broke") == ()
    assert table.take(second) == session


@pytest.mark.parametrize("received", [1, 4])
def test_an_attempt_to_resume_with_a_wrong_count_is_refused_and_disturbs_nothing(received: int) -> None:
    table = make()
    first, session = join(table)
    for text in "xyz":
        table.put(session, text)
    written(table, first)
    table.receive(first, Acknowledge(2))
    second = table.connected(0.0)
    assert table.open(second, "k", OpenSession(1, received)) == [Finish(second)]
    (refused,) = written(table, second)
    assert isinstance(refused, SessionRefused)
    assert f"received {received} messages" in refused.reason
    assert table.take(first) == session


def test_a_session_that_is_not_known_is_refused() -> None:
    table = make()
    connection = table.connected(0.0)
    assert table.open(connection, "k", OpenSession(1, 5)) == [Finish(connection)]
    assert written(table, connection) == [SessionRefused("it does not know this session")]


def test_a_number_is_used_once() -> None:
    table = make()
    join(table)
    again = table.connected(0.0)
    assert table.open(again, "k", OpenSession(1, 0, is_new=True)) == [Finish(again)]


def test_a_stranger_that_says_nothing_is_ended() -> None:
    table = make()
    connection, visitor = table.connected(0.0), table.connected(1.0)
    table.visited(visitor)
    assert table.deadline() == REGISTRATION_TIMEOUT
    assert table.wake(REGISTRATION_TIMEOUT) == [Drop(connection)]
    assert table.deadline() is None
    assert table.open(connection, "k", OpenSession(1, 0, is_new=True)) == ()


def test_messages_are_acknowledged_now_and_then() -> None:
    table = make()
    connection, _ = join(table)
    for _ in range(ACKNOWLEDGE_EVERY):
        table.take(connection)
    assert written(table, connection) == [Acknowledge(ACKNOWLEDGE_EVERY)]


@pytest.mark.parametrize("message", [Acknowledge(1), EndSession(1), SessionOpened(0), OpenSession(1, 0)])
def test_nonsense_breaks_the_connection_and_not_the_session(message: SessionMessage) -> None:
    table = make()
    connection, session = join(table)
    drop, ended = table.receive(connection, message)
    assert drop == Drop(connection)
    assert isinstance(ended, Ended)
    assert not ended.is_forgotten
    assert table.get(session) is not None


def test_a_session_that_keeps_too_much_is_given_up() -> None:
    table = make(kept_max=2)
    connection, session = join(table)
    table.put(session, "x")
    table.put(session, "y")
    reason = "2 messages were not acknowledged"
    assert table.put(session, "z") == [Drop(connection), Ended(session, reason, is_settled=False, is_forgotten=True)]
    assert table.put(session, "z") == ()
    again = table.connected(0.0)
    table.open(again, "k", OpenSession(1, 0))
    assert written(table, again) == [SessionRefused(f"the session has ended: {reason}")]


def test_one_that_is_away_is_given_up_too() -> None:
    table = make(kept_max=1)
    connection, session = join(table)
    table.put(session, "x")
    table.lost(connection, "it broke")
    (ended,) = table.put(session, "y")
    assert isinstance(ended, Ended)
    assert ended.is_forgotten


# The end of one session.


def test_a_client_that_ends_its_session_is_answered_and_forgotten() -> None:
    table = make()
    connection, session = join(table)
    table.take(connection)
    table.put(session, "x")
    written(table, connection)
    finish, ended = table.receive(connection, EndSession(1))
    assert finish == Finish(connection)
    assert ended == Ended(session, "the client closed its connection", is_settled=True, is_forgotten=True)
    assert written(table, connection) == [EndSession(1)]
    assert table.get(session) is None


def test_an_end_whose_answer_was_lost_is_not_the_beginning_of_another_session() -> None:
    table = make()
    connection, _ = join(table)
    table.take(connection)
    table.receive(connection, EndSession(0))
    again = table.connected(0.0)
    assert table.open(again, "k", OpenSession(1, 0)) == [Finish(again)]
    assert isinstance(written(table, again)[0], SessionRefused)


def test_the_sessions_that_have_ended_are_remembered_for_a_while_only() -> None:
    table = make()
    for number in range(ENDED_KEPT_MAX + 1):
        connection, _ = join(table, str(number))
        table.receive(connection, EndSession(0))
    assert len(table._ended) == ENDED_KEPT_MAX
    assert "0" not in table._ended


def test_a_session_that_is_finished_here_ends_with_what_was_said() -> None:
    table = make()
    connection, session = join(table)
    table.take(connection)
    table.put(session, "x")
    assert table.finish(session, 0.0) == ()
    assert written(table, connection) == ["x", Acknowledge(1)]
    assert table.deadline() == END_TIMEOUT
    (ended,) = table.lost(connection, "the client closed its connection")
    assert isinstance(ended, Ended)
    assert ended.is_forgotten
    assert table.deadline() is None
    again = table.connected(0.0)
    table.open(again, "k", OpenSession(1, 1))
    assert isinstance(written(table, again)[0], SessionRefused)


def test_a_client_that_talks_on_in_a_finished_session_holds_up_nobodys_end() -> None:
    table = make()
    (talks, talking), (_, other) = join(table, "talks"), join(table, "other")
    table.finish(talking, 0.0)
    table.finish(other, 0.5)
    table.take(talks)
    assert table.finish(talking, 0.9) == ()
    assert [type(effect) for effect in table.wake(END_TIMEOUT)] == [Drop, Ended]
    assert table.deadline() == 0.5 + END_TIMEOUT


def test_a_finished_session_that_keeps_too_much_leaves_no_deadline() -> None:
    table = make(kept_max=1)
    connection, session = join(table)
    table.finish(session, 0.0)
    table.put(session, "x")
    assert table.put(session, "y")[0] == Drop(connection)
    assert table.deadline() is None


def test_a_session_in_which_nothing_was_said_does_not_hold_up_the_end() -> None:
    table = make()
    member, session = join(table, "member")
    silent, _ = join(table, "silent")
    table.take(member)
    assert table.close(Ending.IN_ORDER, 0.0) == ()
    assert table.deadline() == END_TIMEOUT
    drop, ended = table.wake(END_TIMEOUT)
    assert drop == Drop(silent)
    assert isinstance(ended, Ended)
    assert table.deadline() == HEARTBEAT_TIMEOUT
    assert table.get(session) is not None


def test_a_client_that_does_not_go_is_ended() -> None:
    table = make()
    connection, session = join(table)
    table.finish(session, 0.0)
    drop, ended = table.wake(END_TIMEOUT)
    assert drop == Drop(connection)
    assert ended == Ended(session, "it was ended here", is_settled=True, is_forgotten=True)


def test_a_session_is_ended_for_a_client_that_cannot() -> None:
    table = make()
    connection, session = join(table)
    drop, ended = table.end("k")
    assert drop == Drop(connection)
    assert isinstance(ended, Ended)
    assert table.get(session) is None
    assert table.end("k") == ()


# The end of all.


def test_all_that_are_there_are_waited_for_then_those_that_are_away() -> None:
    table = make()
    here, session = join(table, "here")
    away, other = join(table, "away")
    table.lost(away, "it broke")
    table.put(session, "verdict")
    table.put(other, "verdict")
    assert table.close(Ending.FAILED, 0.0) == ()
    assert written(table, here) == ["verdict", Acknowledge(0)]
    assert table.deadline() == END_TIMEOUT
    finish, ended, flushed = table.receive(here, EndSession(1))
    assert (finish, flushed) == (Finish(here), Flushed())
    assert isinstance(ended, Ended)
    assert table.stay(0.5, is_needed=True) == ()
    assert table.deadline() == 0.5 + LATECOMERS_TIMEOUT
    back = table.connected(0.7)
    table.open(back, "away", OpenSession(1, 0))
    assert written(table, back) == [SessionOpened(0), "verdict", Acknowledge(0)]
    assert table.all_told() == (), "its connection may break before it has heard"
    table.lost(back, "it broke again")
    back = table.connected(0.8)
    table.open(back, "away", OpenSession(1, 0))
    assert written(table, back) == [SessionOpened(0), "verdict", Acknowledge(0)]
    table.receive(back, EndSession(1))
    assert table.all_told() == [TableClosed()]
    assert table.all_told() == ()


def test_who_comes_back_before_the_stay_begins_is_waited_for_as_well() -> None:
    table = make()
    first, session = join(table)
    table.take(first)
    table.put(session, "dismissed")
    table.lost(first, "it broke")
    assert table.close(Ending.IN_ORDER, 0.0) == [Flushed()]
    back = table.connected(0.1)
    table.open(back, "k", OpenSession(1, 0))
    assert table.stay(0.1, is_needed=False) == ()
    assert table.deadline() == 0.1 + LATECOMERS_TIMEOUT
    table.receive(back, EndSession(1))
    assert table.all_told() == [TableClosed()]


def test_those_that_do_not_go_have_their_time() -> None:
    table = make()
    connection, session = join(table)
    table.take(connection)
    table.put(session, "dismissed")
    table.close(Ending.IN_ORDER, 0.0)
    written(table, connection)
    assert table.deadline() == HEARTBEAT_TIMEOUT
    drop, ended, flushed = table.wake(HEARTBEAT_TIMEOUT)
    assert drop == Drop(connection)
    assert ended == Ended(session, "it was ended here", is_settled=False)
    assert flushed == Flushed()
    assert table.stay(HEARTBEAT_TIMEOUT, is_needed=False) == [TableClosed()]


@pytest.mark.parametrize(
    ("ending", "timeout"), [(Ending.SURVIVED, SURVIVORS_TIMEOUT), (Ending.FAILED, LATECOMERS_TIMEOUT)]
)
def test_nobody_is_waited_for_longer_than_the_reason_of_the_end_allows(ending: Ending, timeout: float) -> None:
    table = make()
    assert table.close(ending, 0.0) == [Flushed()]
    table.stay(0.0, is_needed=True)
    assert table.wake(timeout) == [TableClosed()]


def test_who_gives_up_waits_for_nobody_that_is_away() -> None:
    table = make()
    assert table.close(Ending.GAVE_UP, 0.0) == [Flushed()]
    assert table.stay(0.0, is_needed=True) == [TableClosed()]


def test_few_sessions_in_which_nothing_was_said_are_kept_and_others_begin_anew() -> None:
    table = make()
    sessions = []
    for number in range(UNTOUCHED_KEPT_MAX + 3):
        connection, session = join(table, str(number))
        sessions.append(session)
        ended = table.lost(connection, "it broke")
    assert [one.session for one in ended if isinstance(one, Ended) and one.is_forgotten] == [sessions[2]]
    kept = [table.get(session) is not None for session in sessions]
    assert kept == [False] * 3 + [True] * UNTOUCHED_KEPT_MAX
    # What its client sent had not come: it asks for the session, and is answered as for a new one.
    connection = table.connected(0.0)
    (began,) = table.open(connection, "0", OpenSession(1, 0))
    assert isinstance(began, Began)
    assert written(table, connection) == [SessionOpened(0)]


def test_a_session_in_which_something_was_said_is_kept_whatever_comes() -> None:
    table = make()
    connection, session = join(table, "first")
    table.lost(connection, "it broke")
    table.put(session, "x")
    for number in range(UNTOUCHED_KEPT_MAX + 3):
        connection, _ = join(table, str(number))
        table.lost(connection, "it broke")
    assert table.get(session) is not None
