"""The changes of members, numbered, for clients that each say up to which they know."""

from __future__ import annotations

from bisect import bisect_right


class ChangeLog:
    """Of each member that has changed, the number of its last change. Nothing is kept for the readers."""

    def __init__(self) -> None:
        self._number = 0
        self._last: dict[int, int] = {}
        # In their order; those that a later change of the same member has overtaken stay until they are half of all.
        self._numbers: list[int] = []
        self._client_ids: list[int] = []

    def add(self, client_id: int) -> None:
        """Note a change of a member."""
        self._number += 1
        self._last[client_id] = self._number
        self._numbers.append(self._number)
        self._client_ids.append(client_id)
        if len(self._numbers) > 2 * len(self._last):
            self._client_ids = sorted(self._last, key=self._last.__getitem__)
            self._numbers = [self._last[client_id] for client_id in self._client_ids]

    def after(self, seen: int, most: int) -> tuple[list[int], int]:
        """Return the members that have changed after change `seen`, in that order, at `most` so many.

        Returns:
            These members, and the number of the change up to which they are all.
        """
        found: list[int] = []
        for index in range(bisect_right(self._numbers, seen), len(self._numbers)):
            client_id, number = self._client_ids[index], self._numbers[index]
            if self._last[client_id] != number:
                continue
            if len(found) == most:
                return found, number - 1
            found.append(client_id)
        return found, max(seen, self._number)
