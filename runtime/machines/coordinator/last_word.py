"""The end of a job: the verdict, and the clients that have yet to hear of the end."""

from __future__ import annotations

from collections.abc import Iterable

from ....transport.wire.messages import Verdict


class LastWord:
    """Kept after the end, for clients that come late or come back.

    Attributes:
        verdict: why the job failed; `None` in a job that runs, or has ended in order.
    """

    def __init__(self) -> None:
        self.verdict: Verdict | None = None
        self._untold: set[int] = set()
        self._gone: set[int] = set()

    def end(self, verdict: Verdict | None, absent: Iterable[int]) -> None:
        """End the job; clients that are `absent` have to hear of it, unless they have gone for good."""
        self.verdict = verdict
        self._untold = {*absent} - self._gone - ({verdict.client_id} if verdict is not None else set())

    def gone(self, client_ids: Iterable[int]) -> None:
        """Note that clients have gone for good, as the verdict or they themselves say."""
        self._gone.update(client_ids)

    def left(self, client_id: int, *, is_settled: bool) -> None:
        """Note the end of a client's connection after the end; `is_settled` tells that it has acknowledged all."""
        if not is_settled and client_id not in self._gone:
            self._untold.add(client_id)

    def resumed(self, client_id: int) -> None:
        """Note that a client has come back: its session sends the rest."""
        self._untold.discard(client_id)

    def take(self, client_id: int) -> Verdict | None:
        """Return the verdict for a client that comes for the first time; `None` for one that has heard of the end."""
        if self.verdict is None or client_id not in self._untold:
            return None
        self._untold.remove(client_id)
        return self.verdict

    @property
    def all_told(self) -> bool:
        """Whether every client that may still come has heard of the end."""
        return not self._untold
