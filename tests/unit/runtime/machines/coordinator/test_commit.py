"""The vote on the merged table."""

from __future__ import annotations

from bringup.runtime.machines.coordinator.commit import CommitVote
from bringup.transport.wire.messages import Ready, Span


def vote(*digests: bytes) -> CommitVote:
    result = CommitVote(len(digests))
    for client_id, digest in enumerate(digests):
        span = Span("devices", 0.0, float(client_id), client_id)
        result.add(client_id, Ready(digest, (span,)))
    return result


def test_a_vote_is_complete_once_each_client_has_reported_whatever_the_order() -> None:
    result = CommitVote(2)
    for _ in range(2):
        result.add(1, Ready(b"a", ()))
        assert not result.is_complete
    result.add(0, Ready(b"a", ()))
    assert result.is_complete


def test_a_client_of_the_smallest_camp_is_named_with_all_camps() -> None:
    found = vote(b"a", b"b", b"a", b"a").disagreement()
    assert found is not None
    assert found[0] == 1
    assert "61 by clients 0, 2-3; 62 by client 1" in found[1]
    assert vote(b"a", b"a").disagreement() is None


def test_the_commit_keeps_the_slowest_span() -> None:
    commit = vote(b"a", b"a", b"a", b"a").commit()
    assert [span.client_id for span in commit.spans] == [3]


def test_of_many_tables_a_text_shows_a_few() -> None:
    found = vote(*(b"%d" % (client_id // 2) for client_id in range(40))).disagreement()
    assert found is not None
    assert found[1].count(" by clients ") == 8
    assert "; and 12 more tables. Restart" in found[1]
