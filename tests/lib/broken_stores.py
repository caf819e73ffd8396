"""Key-value stores with one planted bug each, which a check of their clients' results must find."""

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
    """Carries out a call twice where the client repeats it after a lost link."""

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
    """Deletes only part of a directory."""

    def handle(self, session: int, request: KeyValueRequest) -> list[tuple[int, sm.ServiceReply]]:
        if isinstance(request, sm.DeleteKeys) and request.key == "d":
            return super().handle(session, sm.DeleteKeys(request.ticket, "d/e"))
        return super().handle(session, request)
