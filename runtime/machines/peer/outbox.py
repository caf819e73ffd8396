"""The messages of a peer to the coordinator, held back while it has yet to read what came while it did not run."""

from __future__ import annotations

from ..detector import Lag
from . import events as ev


class Outbox:
    """Lets effects through, but for the messages of a client that reads its backlog: these leave once it has.

    A coordinator that has gone meanwhile has left its last words there: to write would break the connection, and lose
    them.

    Args:
        lag: of the peer's machine.
        began: when this peer did: messages that are held are due since then.
    """

    def __init__(self, lag: Lag, began: float) -> None:
        self._lag = lag
        self._began = began
        self._held: list[ev.PeerEffect] = []

    def pass_through(self, effects: list[ev.PeerEffect], now: float, *, is_registered: bool) -> list[ev.PeerEffect]:
        """Return the effects to be carried out now.

        Args:
            effects: of an event, in their order.
            now: the time.
            is_registered: whether the coordinator knows this client; what is said before is a registration.
        """
        if not self._lag.is_reading(now):
            held, self._held = self._held, []
            return [*held, *effects] if held else effects
        if not is_registered:
            return effects
        self._held += [effect for effect in effects if isinstance(effect, ev.Send)]
        return [effect for effect in effects if not isinstance(effect, ev.Send)]

    def due(self) -> float | None:
        """Return when to send what is held, reading apart; `None` where nothing is."""
        return self._began if self._held else None
