"""The roster of a job: the facts of all its clients, made once by the coordinator, the same bytes on every client."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import overload

from ...transport.wire.control import decode, encode
from ...transport.wire.form import MalformedMessageError
from ...transport.wire.messages import MemberInfo, MemberList

_DIGEST_BYTES = 16
"""It is compared with the coordinator's, of the same job: 128 bits tell any two rosters apart."""


class Roster(Sequence[MemberInfo]):
    """The members of a job, by client id. They are decoded where one is first looked at: 10,000 in some 10 ms.

    Until then a client holds the bytes alone, some 120 for each client of the job. Only those of which the digest is
    the coordinator's are certain to be a roster.

    Args:
        data: the wire form.

    Attributes:
        data: see above.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data

    @classmethod
    def of(cls, members: Iterable[MemberInfo]) -> Roster:
        """Return the roster of `members`, which come in the order of their ids, from 0 on."""
        return cls(encode(MemberList(tuple(members))))

    @cached_property
    def digest(self) -> bytes:
        """Equal on two clients if and only if their rosters are."""
        return hashlib.blake2b(self.data, digest_size=_DIGEST_BYTES).digest()

    @cached_property
    def _members(self) -> tuple[MemberInfo, ...]:
        message = decode(self.data)
        if not isinstance(message, MemberList):
            raise MalformedMessageError(f"a {type(message).__name__} is no roster")
        return message.members

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[MemberInfo]:
        return iter(self._members)

    @overload
    def __getitem__(self, client_id: int) -> MemberInfo: ...

    @overload
    def __getitem__(self, client_id: slice) -> tuple[MemberInfo, ...]: ...

    def __getitem__(self, client_id: int | slice) -> MemberInfo | tuple[MemberInfo, ...]:
        return self._members[client_id]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Roster) and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.data)

    def __repr__(self) -> str:
        return f"Roster({len(self.data)} bytes, digest {self.digest.hex()})"
