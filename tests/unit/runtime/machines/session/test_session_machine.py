"""The dialling side of a session, step by step."""

from __future__ import annotations

import pytest

from bringup.errors import CoordinatorLostError, DeviceFailedError, PeerFailedError, RendezvousTimeoutError
from bringup.runtime.machines.session.effects import Dial, Drop, Finished, GivenUp, Gone, Lost, Opened, Resumed
from bringup.runtime.machines.session.limits import (
    ACKNOWLEDGE_BYTES,
    ACKNOWLEDGE_EVERY,
    END_TIMEOUT,
    OPEN_TIMEOUT,
    REDIAL_DELAY,
    WINDOW,
    Ending,
    ending_of,
    flush_timeout,
    stay_timeout,
)
from bringup.runtime.machines.session.machine import SessionMachine
from bringup.transport.wire.session_messages import (
    Acknowledge,
    EndSession,
    OpenSession,
    SessionMessage,
    SessionOpened,
    SessionRefused,
)

NUMBER = 77


def written(session: SessionMachine[str], connection: int) -> list[str | SessionMessage]:
    out = []
    while (message := session.next_to_send(connection)) is not None:
        out.append(message)
    return out


def carried(*, kept_max: int = 100, begins_anew: bool = False) -> SessionMachine[str]:
    """Return a session on connection 1, over which `a` and `b` were sent."""
    session: SessionMachine[str] = SessionMachine(kept_max, begins_anew=begins_anew)
    assert session.begin(NUMBER, 0.0) == [Dial(1, is_expected=False)]
    assert session.opened(1, 0.0) == [Opened(1)]
    session.put("a")
    session.put("b")
    assert written(session, 1) == [OpenSession(NUMBER, 0, is_new=True), "a", "b"]
    return session


def answered(**settings: bool) -> SessionMachine[str]:
    session = carried(**settings)
    assert session.take(1)
    return session


def test_a_new_session_is_carried_as_soon_as_there_is_a_connection() -> None:
    session = carried()
    assert session.carrier == 1
    assert session.was_opened
    assert session.deadline() is None


def test_messages_that_were_put_before_there_was_a_connection_follow_its_opening() -> None:
    session: SessionMachine[str] = SessionMachine(100)
    session.begin(NUMBER, 0.0)
    session.put("a")
    session.opened(1, 0.0)
    assert written(session, 1) == [OpenSession(NUMBER, 0, is_new=True), "a"]


def test_a_message_that_waited_for_another_connection_is_sent_as_its_owner_revises_it() -> None:
    session: SessionMachine[str] = SessionMachine(100, revised=str.upper)
    session.begin(NUMBER, 0.0)
    session.opened(1, 0.0)
    for message in ("a", "b", "c"):
        session.put(message)
    assert written(session, 1)[1:] == ["a", "b", "c"]
    assert session.take(1)
    session.lost(1, "it broke", 1.0)
    session.put("d")
    session.opened(2, 1.0)
    assert written(session, 2) == [OpenSession(NUMBER, 1)]
    session.receive(2, SessionOpened(1), 1.0)
    session.put("e")
    assert written(session, 2) == ["B", "C", "D", "e"]


def test_a_lost_connection_is_replaced_and_what_the_other_side_lacks_sent_again() -> None:
    session = answered()
    assert session.lost(1, "it broke", 1.0) == [Lost("it broke"), Dial(2, is_expected=True)]
    session.put("c")
    assert session.opened(2, 1.0) == []
    assert written(session, 2) == [OpenSession(NUMBER, 1)]
    assert session.receive(2, SessionOpened(1), 1.1) == [Resumed()]
    assert written(session, 2) == ["b", "c"]
    assert session.deadline() is None


def test_a_session_in_which_nothing_was_heard_may_be_begun_anew() -> None:
    session = carried(begins_anew=True)
    assert session.lost(1, "it broke", 1.0) == [Lost("it broke")]
    assert session.begin(NUMBER + 1, 1.0) == []
    assert session.deadline() == 1.0 + REDIAL_DELAY
    assert session.wake(1.0 + REDIAL_DELAY) == [Dial(2, is_expected=False)]
    assert session.opened(2, 1.1) == [Opened(2)]
    assert written(session, 2) == [OpenSession(NUMBER + 1, 0, is_new=True)]


def test_one_that_is_begun_anew_leaves_the_connection_that_it_has() -> None:
    session = carried(begins_anew=True)
    assert session.begin(NUMBER + 1, 1.0) == [Drop(1)]
    assert written(session, 1) == []


def test_one_that_is_not_begun_anew_is_resumed_though_nothing_was_heard() -> None:
    session = carried()
    assert session.lost(1, "it broke", 1.0) == [Lost("it broke"), Dial(2, is_expected=False)]
    session.opened(2, 1.0)
    assert written(session, 2) == [OpenSession(NUMBER, 0)]
    session.receive(2, SessionOpened(0), 1.0)
    assert written(session, 2) == ["a", "b"]


def test_the_present_connection_is_used_until_another_is_open_and_left_then() -> None:
    session = answered()
    assert session.redial() == [Dial(2, is_expected=True)]
    session.put("c")
    assert written(session, 1) == ["c"]
    assert session.take(1)
    assert session.opened(2, 1.0) == []
    assert written(session, 2) == [OpenSession(NUMBER, 2)]
    session.put("d")
    assert written(session, 1) == ["d"]
    assert session.take(1)
    assert session.receive(2, SessionOpened(3), 1.0) == [Drop(1), Resumed()]
    assert written(session, 2) == ["d"]
    assert not session.take(1)
    assert not session.take(2), "it came over the former connection already"
    assert session.take(2)
    assert session.received == 4


def test_nothing_is_acknowledged_while_another_connection_may_take_over() -> None:
    session = answered()
    session.redial()
    session.opened(2, 1.0)
    assert written(session, 2) == [OpenSession(NUMBER, 1)]
    for _ in range(ACKNOWLEDGE_EVERY):
        assert session.take(1)
    assert written(session, 1) == []


def test_a_connection_that_ends_while_another_opens_the_session_is_not_dialled_for() -> None:
    session = answered()
    session.redial()
    session.opened(2, 1.0)
    assert session.lost(1, "it broke", 1.0) == [Lost("it broke")]
    assert session.receive(2, SessionOpened(2), 1.0) == [Resumed()]


def test_a_slow_side_is_dialled_ever_more_rarely_and_heard_all_the_while() -> None:
    session = answered()
    session.redial(20.0)
    now, waits = 0.0, []
    for number in range(2, 6):
        session.opened(number, now)
        due = session.deadline()
        assert due is not None
        assert session.wake(due) == [Drop(number)]
        assert session.take(1)
        waits.append(due - now)
        now = session.deadline() or 0.0
        assert session.wake(now) == [Dial(number + 1, is_expected=True)]
    assert waits == [20.0, 20.0, 32.0, 32.0]
    assert session.carrier == 1


def test_a_wish_to_redial_replaces_one_that_takes_long() -> None:
    session = answered()
    session.redial()
    assert session.redial() == [Drop(2), Dial(3, is_expected=True)]
    assert session.opened(2, 1.0) == [Drop(2)]


def test_a_connection_that_breaks_while_another_is_dialled_is_dialled_for_at_once() -> None:
    session = answered()
    session.redial()
    assert session.lost(1, "it broke", 1.0) == [Drop(2), Lost("it broke"), Dial(3, is_expected=True)]
    assert session.redial() == ()


def test_a_connection_that_does_not_answer_is_left_for_another() -> None:
    session = answered()
    session.lost(1, "it broke", 0.0)
    session.opened(2, 1.0)
    assert session.deadline() == 1.0 + OPEN_TIMEOUT
    assert session.wake(1.0 + OPEN_TIMEOUT) == [Drop(2)]
    assert session.deadline() == 1.0 + OPEN_TIMEOUT + REDIAL_DELAY
    assert session.wake(1.0 + OPEN_TIMEOUT + REDIAL_DELAY) == [Dial(3, is_expected=True)]
    assert session.receive(2, SessionOpened(0), 9.0) == ()


def test_a_connection_that_ends_before_it_answers_is_replaced_after_a_pause() -> None:
    session = answered()
    session.lost(1, "it broke", 0.0)
    session.opened(2, 1.0)
    assert session.lost(2, "it broke, too", 1.0) == ()
    assert session.wake(1.0 + REDIAL_DELAY) == [Dial(3, is_expected=True)]


def test_an_address_that_refuses_where_the_other_side_was_is_its_end() -> None:
    session = answered()
    session.lost(1, "it broke", 0.0)
    assert session.unreachable(2, "refused") == [Gone("refused")]
    assert session.is_closed


def test_a_refusal_says_nothing_of_who_was_heard_meanwhile() -> None:
    session = answered()
    session.redial()
    assert session.take(1)
    assert session.unreachable(2, "refused") == ()
    assert session.carrier == 1
    session.redial()
    assert session.unreachable(3, "refused") == [Drop(1), Gone("refused")]


def test_a_session_that_the_other_side_does_not_know_is_over() -> None:
    session = answered()
    session.lost(1, "it broke", 0.0)
    session.opened(2, 0.0)
    assert session.receive(2, SessionRefused("unknown"), 0.0) == [Drop(2), Gone("unknown")]


def test_a_side_that_counts_otherwise_does_not_know_the_session() -> None:
    session = answered()
    session.lost(1, "it broke", 0.0)
    session.opened(2, 0.0)
    drop, gone = session.receive(2, SessionOpened(3), 0.0)
    assert drop == Drop(2)
    assert isinstance(gone, Gone)
    assert "received 3 messages" in gone.reason


@pytest.mark.parametrize("message", [Acknowledge(3), SessionOpened(0), OpenSession(1, 1), EndSession(1)])
def test_nonsense_breaks_the_connection_and_not_the_session(message: SessionMessage) -> None:
    session = answered()
    drop, lost, dial = session.receive(1, message, 0.0)
    assert drop == Drop(1)
    assert isinstance(lost, Lost)
    assert dial == Dial(2, is_expected=True)


def test_acknowledgements_are_due_after_some_messages_or_bytes() -> None:
    session = carried()
    for _ in range(ACKNOWLEDGE_EVERY - 1):
        session.take(1)
    assert written(session, 1) == []
    session.take(1)
    assert written(session, 1) == [Acknowledge(ACKNOWLEDGE_EVERY)]
    session.take(1, ACKNOWLEDGE_BYTES + 1)
    assert written(session, 1) == [Acknowledge(ACKNOWLEDGE_EVERY + 1)]


def test_what_is_acknowledged_is_not_kept() -> None:
    session = carried()
    assert session.num_kept == 2
    assert session.receive(1, Acknowledge(1), 0.0) == ()
    assert session.num_kept == 1


def test_a_session_that_keeps_too_much_is_given_up() -> None:
    session = carried(kept_max=3)
    assert session.put("c") == ()
    drop, given_up = session.put("d")
    assert drop == Drop(1)
    assert given_up == GivenUp("3 messages were not acknowledged")
    assert session.is_closed
    assert session.put("e") == ()


def test_there_is_room_until_a_window_is_on_its_way() -> None:
    session = carried()
    for _ in range(WINDOW - 3):
        session.put("x")
    assert session.has_room
    session.put("x")
    assert not session.has_room


# The end.


def test_it_ends_when_the_other_side_says_that_it_has_received_everything() -> None:
    session = answered()
    session.put("c")
    session.finish(1.0)
    assert session.put("too late") == ()
    assert written(session, 1) == ["c", EndSession(1)]
    drop, finished = session.receive(1, EndSession(3), 1.0)
    assert drop == Drop(1)
    assert isinstance(finished, Finished)
    assert session.is_closed


def test_an_end_that_a_connection_has_swallowed_is_said_again() -> None:
    session = answered()
    session.finish(1.0)
    assert written(session, 1) == [EndSession(1)]
    assert session.lost(1, "it broke", 1.0) == [Dial(2, is_expected=True)]
    session.opened(2, 1.0)
    assert written(session, 2) == [OpenSession(NUMBER, 1)]
    session.receive(2, SessionOpened(2), 1.0)
    assert written(session, 2) == [EndSession(1)]


@pytest.mark.parametrize("is_refused", [True, False])
def test_an_end_whose_answer_was_lost_is_over_when_nobody_knows_the_session(is_refused: bool) -> None:
    session = answered()
    session.finish(1.0)
    written(session, 1)
    session.lost(1, "it broke", 1.0)
    if is_refused:
        effects = session.unreachable(2, "refused")
    else:
        session.opened(2, 1.0)
        effects = session.receive(2, SessionRefused("ended"), 1.0)
    assert isinstance(effects[-1], Finished)
    assert session.is_closed


@pytest.mark.parametrize("is_carried", [True, False])
def test_an_end_that_nobody_answers_takes_a_second(is_carried: bool) -> None:
    session = answered()
    if not is_carried:
        session.lost(1, "it broke", 1.0)
    session.finish(1.0)
    assert session.deadline() == 1.0 + END_TIMEOUT
    drop, finished = session.wake(1.0 + END_TIMEOUT)
    assert drop == Drop(1 if is_carried else 2)
    assert isinstance(finished, Finished)


def test_one_that_has_nothing_to_say_ends_at_once() -> None:
    session: SessionMachine[str] = SessionMachine(100)
    assert isinstance(session.finish(0.0)[-1], Finished)
    session = SessionMachine(100)
    session.begin(NUMBER, 0.0)
    drop, finished = session.finish(0.0)
    assert drop == Drop(1)
    assert isinstance(finished, Finished)
    assert session.opened(1, 0.0) == [Drop(1)]


def test_one_that_would_be_begun_anew_is_not_for_its_end() -> None:
    session = carried(begins_anew=True)
    session.finish(0.0)
    assert isinstance(session.lost(1, "it broke", 0.5)[-1], Finished)


def test_a_redial_is_given_up_for_the_end() -> None:
    session = answered()
    session.redial()
    assert session.finish(1.0) == [Drop(2)]
    assert written(session, 1) == [EndSession(1)]


# Why client 0 ends.


def _failed(kind: type[PeerFailedError], client_id: int) -> PeerFailedError:
    return kind("it failed", client_id=client_id, address="h:1", phase="ready", cause="it failed")


@pytest.mark.parametrize(
    ("error", "ending", "flush", "stay"),
    [
        (None, Ending.IN_ORDER, 10.0, 1.0),
        (_failed(PeerFailedError, 3), Ending.SURVIVED, 1.0, 0.1),
        (_failed(DeviceFailedError, 3), Ending.SURVIVED, 1.0, 0.1),
        (_failed(DeviceFailedError, 0), Ending.FAILED, 1.0, 1.0),
        (_failed(CoordinatorLostError, 0), Ending.SURVIVED, 1.0, 0.1),
        (RuntimeError("a bug"), Ending.FAILED, 1.0, 1.0),
        (RendezvousTimeoutError("too late", missing={}), Ending.GAVE_UP, 1.0, 0.0),
    ],
)
def test_how_long_client_0_stays_depends_on_why_it_ends(
    error: BaseException | None, ending: Ending, flush: float, stay: float
) -> None:
    assert ending_of(error, 0, has_left=error is None, gave_up=False) is ending
    assert flush_timeout(ending, 10.0, 0) == flush
    assert flush_timeout(ending, 10.0, 1000) == flush + 5.0
    assert stay_timeout(ending) == stay
    assert ending_of(error, 0, has_left=False, gave_up=True) is Ending.GAVE_UP
