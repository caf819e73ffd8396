"""The last word of a coordinator: who has yet to hear it."""

from __future__ import annotations

from bringup.runtime.machines.coordinator.last_word import LastWord
from bringup.transport.wire.messages import Verdict

VERDICT = Verdict("PeerFailedError", 2, "h2:9000", "node-2", "ready", "process died", (), ())


def ended() -> LastWord:
    word = LastWord()
    word.gone((3,))
    word.end(VERDICT, (1, 2, 3))
    return word


def test_an_absent_client_hears_the_verdict_once_but_not_the_culprit_nor_those_that_have_gone() -> None:
    word = ended()
    assert [word.take(client_id) for client_id in range(4)] == [None, VERDICT, None, None]
    assert word.take(1) is None
    assert word.all_told


def test_a_client_whose_connection_ends_before_it_has_heard_all_is_waited_for() -> None:
    word = ended()
    word.resumed(1)
    assert word.all_told
    word.left(0, is_settled=True)
    word.left(3, is_settled=False)
    assert word.all_told
    word.left(0, is_settled=False)
    assert not word.all_told
    word.resumed(0)
    assert word.all_told


def test_after_an_orderly_end_clients_that_were_away_are_waited_for_and_get_no_verdict() -> None:
    word = LastWord()
    word.end(None, (1,))
    assert not word.all_told
    assert word.take(1) is None
