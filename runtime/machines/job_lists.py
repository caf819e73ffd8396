"""Whether clients were given one list of addresses: a digest says so, and where it does not, the first that differs."""

from __future__ import annotations

import hashlib

from msgspec.structs import replace

from ...transport.wire.messages import Refused

_DIGEST_BYTES = 8
_ADVICE = "All clients must be given the same jobs, in the same order: it gives them their ids."
# A list that differs is mostly short; of a long one the beginning shows what went wrong as well.
_CHARACTERS_MAX = 8192


def digest_of(addresses: tuple[str, ...] | None) -> str:
    """Return what two equal lists have in common, empty where only the coordinator's address is known."""
    if addresses is None:
        return ""
    return hashlib.blake2b(",".join(addresses).encode(), digest_size=_DIGEST_BYTES).hexdigest()


def refusal_of_list(digest: str, addresses: tuple[str, ...] | None) -> Refused | None:
    """Return the coordinator's refusal of a client whose list has this digest, or `None` where it fits."""
    own = digest_of(addresses)
    if addresses is None or not digest or digest == own:
        return None
    return Refused("jobs", f"list {digest}", ",".join(addresses)[:_CHARACTERS_MAX], _ADVICE)


def named(refusal: Refused, addresses: tuple[str, ...] | None) -> Refused:
    """Return a refusal of a list as one of its first entry that differs, as far as that was sent along."""
    if refusal.field != "jobs" or addresses is None:
        return refusal
    theirs = refusal.ours.split(",")
    if len(refusal.ours) == _CHARACTERS_MAX:
        theirs.pop()  # it may be cut
    for client_id, (here, there) in enumerate(zip(addresses, theirs, strict=False)):
        if here != there:
            return replace(refusal, yours=f"{here!r} for client {client_id}", ours=repr(there))
    return replace(refusal, yours="another list", ours=f"one that differs beyond client {len(theirs) - 1}")
