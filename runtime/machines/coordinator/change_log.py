"""The changes of members, numbered, for clients that each say up to which they know."""

from __future__ import annotations

from bisect import bisect_right


class ChangeLog:
    """Of each member that has changed, the number of its last change. Nothing is kept for the readers.

    A read costs the changes that it finds, as those that were overtaken are skipped: each points at the next one that
    may not be, and every look shortens the way.
    """

    def __init__(self) -> None:
        self._number = 0
        self._place_of: dict[int, int] = {}
        # By place, in the order of changes; those that were overtaken stay until they are half of all.
        self._numbers: list[int] = []
        self._client_ids: list[int] = []
        self._following: list[int] = []  # the place itself, where it was not overtaken

    def add(self, client_id: int) -> None:
        """Note a change of a member."""
        if (overtaken := self._place_of.get(client_id)) is not None:
            self._following[overtaken] = overtaken + 1
        if len(self._numbers) > 2 * len(self._place_of):
            self._forget_overtaken()
        self._number += 1
        self._append(client_id, self._number)

    def after(self, seen: int, most: int) -> tuple[list[int], int]:
        """Return the members that have changed after change `seen`, in that order, at `most` so many.

        Returns:
            These members, and the number of the change up to which they are all.
        """
        found: list[int] = []
        place = self._from(bisect_right(self._numbers, seen))
        while place < len(self._numbers):
            if len(found) == most:
                return found, self._numbers[place] - 1
            found.append(self._client_ids[place])
            place = self._from(place + 1)
        return found, max(seen, self._number)

    def _from(self, place: int) -> int:
        """Return the first place from `place` on that was not overtaken, or the end."""
        following, end, first = self._following, len(self._numbers), place
        while first < end and following[first] != first:
            first = following[first]
        while place < first:
            following[place], place = first, following[place]
        return first

    def _append(self, client_id: int, number: int) -> None:
        place = self._place_of[client_id] = len(self._numbers)
        self._numbers.append(number)
        self._client_ids.append(client_id)
        self._following.append(place)

    def _forget_overtaken(self) -> None:
        kept = [place for place, following in enumerate(self._following) if place == following]
        changes = [(self._client_ids[place], self._numbers[place]) for place in kept]
        self._place_of, self._numbers, self._client_ids, self._following = {}, [], [], []
        for client_id, number in changes:
            self._append(client_id, number)
