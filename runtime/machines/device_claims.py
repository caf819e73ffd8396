"""Detection of devices that two clients have brought up, by their fingerprints in the merge.

A fingerprint travels with each device as a hash. Where one is on two clients, these two write into a further merge what
they call the device and which host they are on, so that every client raises the same error.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ...devices.base import LocalDevice
from ...errors import TopologyError
from ...transport.texts import printable

Int32Array = npt.NDArray[np.int32]
Uint8Array = npt.NDArray[np.uint8]

FINGERPRINT_COLUMNS = 2
"""64 bits: among 100,000 devices two of the same hash have a chance of one in three thousand million."""

_WORDS = struct.Struct(f"<{FINGERPRINT_COLUMNS}i")

_TEXT_BYTES = 256
"""Of a device's and of a host's name in a claim; a longer name is cut in the error text."""

Shared = tuple[tuple[int, int], tuple[int, int], int]
"""The client and local index of a device, those of the same device on another client, and how many such there are."""


def hash_of(fingerprint: str) -> tuple[int, ...]:
    """Return the hash of a fingerprint for a row, as two int32; zeros for none."""
    if not fingerprint:
        return (0,) * FINGERPRINT_COLUMNS
    data = fingerprint.encode(errors="replace")
    first, *rest = _WORDS.unpack(hashlib.blake2b(data, digest_size=_WORDS.size).digest())
    return (first | 1, *rest)  # never zeros


def all_different(rows: Int32Array) -> bool:
    """Return whether all rows of int32 `[R, C]` differ, as they almost always do: without a sort, and its code."""
    data, width = rows.tobytes(), rows.itemsize * rows.shape[1]
    return len({data[at : at + width] for at in range(0, len(data), width)}) == len(rows)


def find_shared(counts: Int32Array, hashes: Int32Array, shares: npt.NDArray[np.bool_]) -> Shared | None:
    """Return a device of two clients; one that a client has twice, as the cores of a chip, does not count.

    Args:
        counts: int32 `[num_clients]`, devices of each client.
        hashes: int32 `[D, 2]`, from `hash_of`, ordered by client, then by local index.
        shares: bool `[D]`, whether the client allows others to have the device, if they allow it too.

    Returns:
        The first of them, or `None`.
    """
    (rows,) = hashes[:, 0].nonzero()
    if rows.size == 0 or all_different(hashes[rows]):
        return None
    _, kinds = np.unique(hashes[rows], axis=0, return_inverse=True)
    kinds = np.ravel(kinds)
    owners = np.repeat(np.arange(counts.size), counts)[rows]
    # Stable: within a kind, rows stay in the order of their clients.
    order = np.argsort(kinds, kind="stable")
    same = (kinds[order][1:] == kinds[order][:-1]) & (owners[order][1:] != owners[order][:-1])
    same &= ~(shares[rows][order][1:] & shares[rows][order][:-1])
    if not same.any():
        return None
    pairs = np.stack([rows[order][:-1][same], rows[order][1:][same]], axis=1)
    one, other = pairs[np.argmin(pairs[:, 0])].tolist()
    starts = np.cumsum(counts) - counts
    owner_of = np.repeat(np.arange(counts.size), counts)
    places = [(int(owner_of[row]), int(row - starts[owner_of[row]])) for row in (one, other)]
    return places[0], places[1], int(np.unique(kinds[order][1:][same]).size)


def own_claims(client_id: int, hostname: str, devices: Sequence[LocalDevice], shared: Shared) -> Uint8Array:
    """Return this client's part of the merge of claims: uint8 `[2, 2, 256]`, the two clients' device and host."""
    claims = np.zeros((2, 2, _TEXT_BYTES), np.uint8)
    for claim, (claimant, index) in zip(claims, shared[:2], strict=True):
        if claimant == client_id:
            device = devices[index]
            for field, text in zip(claim, (f"{device.kind} {device.fingerprint}", hostname), strict=True):
                data = text.encode(errors="replace")[:_TEXT_BYTES]
                field[: len(data)] = np.frombuffer(data, np.uint8)
    return claims


def shared_error(shared: Shared, claims: Uint8Array) -> TopologyError:
    """Return the error for a result of `find_shared` and the merged `claims`."""
    (one, one_index), (other, other_index), number = shared
    (name, host), (_, other_host) = ([_text(field) for field in claim] for claim in claims)
    more = f" ({number} devices are so shared)" if number > 1 else ""
    return TopologyError(
        f"client {one} on host {host} and client {other} on host {other_host} have brought up the same device: "
        f"{name}, device {one_index} of client {one} and device {other_index} of client {other}{more}. Give each "
        "client of a host devices of its own: by local_device_ids, by a variable such as CUDA_VISIBLE_DEVICES, or by "
        "BRINGUP_LOCAL_CLIENT_ID and BRINGUP_NUM_LOCAL_CLIENTS, as `bringup run` sets them. Where they are to "
        "share it, set share_devices=True on all of them"
    )


def _text(field: Uint8Array) -> str:
    return printable(field.tobytes().rstrip(b"\0").decode(errors="replace"))
