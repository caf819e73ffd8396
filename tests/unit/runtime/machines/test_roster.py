"""The roster: all clients of a job, as bytes until one is looked at."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bringup.runtime.machines.roster import Roster
from bringup.transport.wire.control import encode
from bringup.transport.wire.form import MalformedMessageError
from bringup.transport.wire.messages import Leaving, MemberInfo

MEMBERS = tuple(MemberInfo(i, f"h{i}:9000", f"node-{i}", i, 2**63 + i, f"h{i}:5000") for i in range(5))


def test_it_arrives_as_it_was_made() -> None:
    made = Roster.of(iter(MEMBERS))
    arrived = Roster(bytes(made.data))
    assert (arrived == made, hash(arrived) == hash(made), arrived.digest == made.digest) == (True, True, True)
    assert (len(arrived), tuple(arrived), arrived[3], arrived[1:3]) == (5, MEMBERS, MEMBERS[3], MEMBERS[1:3])
    assert MEMBERS[2] in arrived
    with pytest.raises(IndexError):
        arrived[5]


@pytest.mark.parametrize("field", ["address", "hostname", "pid", "incarnation", "link_address"])
def test_one_wrong_row_is_another_digest(field: str) -> None:
    other = replace(MEMBERS[3], **{field: getattr(MEMBERS[2], field)})
    wrong = Roster.of([*MEMBERS[:3], other, MEMBERS[4]])
    assert wrong.digest != Roster.of(MEMBERS).digest
    assert wrong != Roster.of(MEMBERS)


def test_it_is_decoded_where_one_is_first_looked_at() -> None:
    nonsense = Roster(b"nonsense")
    assert len(nonsense.digest) == 16
    assert "Roster(8 bytes" in repr(nonsense)
    with pytest.raises(MalformedMessageError):
        len(nonsense)
    with pytest.raises(MalformedMessageError, match="a Leaving is no roster"):
        Roster(encode(Leaving(())))[0]


def test_names_come_out_as_they_may_be_shown() -> None:
    assert Roster.of([replace(MEMBERS[0], hostname="a\x1b[31m")])[0].hostname == r"a\x1b[31m"
