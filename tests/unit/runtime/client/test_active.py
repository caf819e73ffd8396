"""The one active client of a process."""

from __future__ import annotations

import os
from typing import Any

import pytest

from bringup.errors import AlreadyInitializedError, NotInitializedError, PeerFailedError
from bringup.runtime.client.active import ActiveClient
from bringup.runtime.drivers.latch import Latch


class Occupant:
    """As much of a client as the slot asks for."""

    def __init__(self) -> None:
        self.up: Latch[Any] = Latch()
        self.is_over = False
        self.was_forked = False

    def describe(self) -> str:
        return "client 0 of job 'worker' (phase rendezvous)"

    def end_error(self) -> BaseException:
        return PeerFailedError("client 1 failed", client_id=1, cause="killed")

    def forked(self) -> None:
        self.was_forked = True


def claimed() -> tuple[Any, Any]:
    slot, client = ActiveClient(), Occupant()
    slot.claim(client)  # type: ignore[arg-type]
    return slot, client


def test_a_process_has_one_client() -> None:
    slot, client = claimed()
    with pytest.raises(AlreadyInitializedError, match=r"client 0 of job 'worker'.*shutdown\(\).*reset=True"):
        slot.claim(Occupant())
    assert slot.get() is client
    client.is_over = True
    successor = Occupant()
    slot.claim(successor)
    slot.release(client)
    assert slot.get() is successor
    slot.release(successor)
    assert slot.get() is None


def test_the_error_for_a_system_that_is_not_there_says_why() -> None:
    slot, client = claimed()
    with pytest.raises(NotInitializedError, match=r"initialize\(\) has not returned yet.*: it is client 0"):
        slot.up()
    client.is_over = True
    with pytest.raises(PeerFailedError, match="client 1 failed"):
        slot.up()
    client.up.set(object())
    assert slot.up() is client
    with pytest.raises(NotInitializedError, match=r"no active system: call bringup.initialize\(\)"):
        ActiveClient().up()


def test_a_forked_child_has_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    slot, client = claimed()
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    slot.forked()
    assert client.was_forked
    assert slot.get() is None
    with pytest.raises(NotInitializedError, match=f"forked from process {parent}"):
        slot.up()
