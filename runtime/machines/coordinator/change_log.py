"""Which clients have changed since each client was last told."""

from __future__ import annotations

from collections import OrderedDict


class News:
    """Costs what has changed, and not the number of clients."""

    def __init__(self) -> None:
        self._sequence = 0
        self._changed: OrderedDict[int, int] = OrderedDict()
        self._told: dict[int, int] = {}

    def announce(self, client_id: int) -> None:
        """Note that a client has changed."""
        self._sequence += 1
        self._changed[client_id] = self._sequence
        self._changed.move_to_end(client_id)

    def tell(self, client_id: int) -> list[int]:
        """Return the clients that have changed since this was last asked for `client_id`."""
        told = self._told.get(client_id, 0)
        self._told[client_id] = self._sequence
        news: list[int] = []
        for changed, sequence in reversed(self._changed.items()):
            if sequence <= told:
                break
            news.append(changed)
        return news
