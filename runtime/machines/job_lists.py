"""Comparison of the clients' lists of addresses: by a digest, and where it differs, by the first different entry."""

from __future__ import annotations

import hashlib

from msgspec.structs import replace

from ...transport.wire.messages import Refused

_DIGEST_BYTES = 8
"""Two lists differ by mistake, not by design: 64 bits find that."""
_ADVICE = "All clients must be given the same jobs, in the same order: it gives them their ids."
# A list that differs is mostly short; of a long one the beginning shows what went wrong as well.
_CHARACTERS_MAX = 8192


def digest_of(addresses: tuple[str, ...] | None) -> str:
    """Return the digest of a list, empty where only the coordinator's address is known."""
    if addresses is None:
        return ""
    return hashlib.blake2b(",".join(addresses).encode(), digest_size=_DIGEST_BYTES).hexdigest()


def refusal_of_list(digest: str, own: str, addresses: tuple[str, ...] | None) -> Refused | None:
    """Return the refusal of a client whose list has another digest than `own`, that of `addresses`; or `None`."""
    if addresses is None or not digest or digest == own:
        return None
    return Refused("jobs", f"list {digest}", ",".join(addresses)[:_CHARACTERS_MAX], _ADVICE)


def named(refusal: Refused, addresses: tuple[str, ...] | None) -> Refused:
    """Return a refusal of a list, narrowed down to the first different entry, if that was sent along."""
    if refusal.field != "jobs" or addresses is None:
        return refusal
    theirs = refusal.ours.split(",")
    if len(refusal.ours) == _CHARACTERS_MAX:
        theirs.pop()  # it may be cut
    for client_id, (here, there) in enumerate(zip(addresses, theirs, strict=False)):
        if here != there:
            return replace(refusal, yours=f"{here!r} for client {client_id}", ours=repr(there))
    return replace(refusal, yours="another list", ours=f"one that differs beyond client {len(theirs) - 1}")
