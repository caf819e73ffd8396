"""The vote on the merged table: a job is up once all clients hold the same one."""

from __future__ import annotations

from ....transport.wire.messages import Commit, Ready
from ..id_ranges import name_ids
from ..phases import slowest

_CAMPS_MAX = 8
"""Of those that a text lists, which goes to all clients: in the worst case each client holds a table of its own."""


class CommitVote:
    """The reports of all clients of a job, one from each."""

    def __init__(self, num_clients: int) -> None:
        self._num_clients = num_clients
        self._ready: dict[int, Ready] = {}

    def add(self, client_id: int, ready: Ready) -> None:
        """Take in a client's report."""
        self._ready[client_id] = ready

    @property
    def is_complete(self) -> bool:
        """Whether all clients have reported."""
        return len(self._ready) == self._num_clients

    def disagreement(self) -> tuple[int, str] | None:
        """Return a client of the smallest camp, and the cause; or `None` where all hold the same table."""
        by_digest: dict[bytes, list[int]] = {}
        for client_id, report in sorted(self._ready.items()):
            by_digest.setdefault(report.digest, []).append(client_id)
        if len(by_digest) == 1:
            return None
        largest = sorted(by_digest.items(), key=lambda camp: -len(camp[1]))
        camps = "; ".join(f"{digest.hex()} by {name_ids(ids)}" for digest, ids in largest[:_CAMPS_MAX])
        if (hidden := len(largest) - _CAMPS_MAX) > 0:
            camps += f"; and {hidden} more tables"
        cause = f"the clients hold different tables of devices after the merge: {camps}. Restart the job."
        return min(by_digest.values(), key=len)[0], cause

    def commit(self) -> Commit:
        """Return the message to all once they agree; called once, and last."""
        reports = [self._ready[client_id] for client_id in range(self._num_clients)]
        self._ready = {}  # for the life of the job it would be 2 KB for each client
        spans = slowest([span for report in reports for span in report.spans])
        return Commit(spans)
