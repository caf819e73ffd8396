"""Key-value stores with a fault planted in each, that a check of what their clients see is to find."""

from __future__ import annotations

from bringup.runtime.machines.kv.store import KeyValueRequest, StoreMachine
from bringup.transport.wire import services as sm


class StaleStore(StoreMachine):
    """Reads from a copy that is behind, now and then."""

    _old: bytes | None = None

    def _get(self, session: int, request: sm.GetKey) -> list[tuple[int, sm.ServiceReply]]:
        replies = super()._get(session, request)
        if not request.wait and request.key == "n":
            self._old, replies = replies[0][1].value, [(session, sm.Value(request.ticket, self._old))]  # type: ignore[union-attr]
        return replies

    def handle(self, session: int, request: KeyValueRequest) -> list[tuple[int, sm.ServiceReply]]:
        return self._get(session, request) if isinstance(request, sm.GetKey) else super().handle(session, request)


class DoublingStore(StoreMachine):
    """Does what the client of a call repeats after a lost link, without knowing it again."""

    def handle(self, session: int, request: KeyValueRequest) -> list[tuple[int, sm.ServiceReply]]:
        if isinstance(request, sm.IncrementKey) and request.ticket % 7 == 0:
            super().handle(session, request)
        return super().handle(session, request)


class ForgetfulStore(StoreMachine):
    """Acknowledges a set that it then loses."""

    def handle(self, session: int, request: KeyValueRequest) -> list[tuple[int, sm.ServiceReply]]:
        if isinstance(request, sm.SetKey) and request.overwrite and request.ticket % 5 == 4:
            return [(session, sm.Done(request.ticket))]
        return super().handle(session, request)


class TornStore(StoreMachine):
    """Leaves something of a directory that it deletes."""

    def handle(self, session: int, request: KeyValueRequest) -> list[tuple[int, sm.ServiceReply]]:
        if isinstance(request, sm.DeleteKeys) and request.key == "d":
            return super().handle(session, sm.DeleteKeys(request.ticket, "d/e"))
        return super().handle(session, request)
