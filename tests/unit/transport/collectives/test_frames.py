"""Frames of the collectives, and the agreement that travels in them."""

from __future__ import annotations

import functools

import pytest

from bringup.transport.collectives.frames import (
    HEADER_BYTES,
    TEXT_BYTES_MAX,
    Agreement,
    FrameHeader,
    MalformedFrameError,
    decode_header,
)

HEADER = FrameHeader(agreed=True, text_bytes=12, sequence=7, payload_bytes=1000)


def agreement_of(*calls: str) -> Agreement:
    """Return what has become of the agreement once all clients have joined it."""
    first, *rest = calls
    return functools.reduce(lambda so_far, join: so_far.join(*join), enumerate(rest, 1), Agreement.of(first))


@pytest.mark.parametrize(
    "header", [HEADER, FrameHeader(False, 0, 1, 0), FrameHeader(False, TEXT_BYTES_MAX, 2**40, 2**63)]
)
def test_a_header_survives(header: FrameHeader) -> None:
    data = header.encode()
    assert len(data) == HEADER_BYTES
    assert decode_header(data, header.sequence, header.payload_bytes) == header


@pytest.mark.parametrize(
    ("data", "sequence", "payload_bytes_max", "complaint"),
    [
        (b"x" + HEADER.encode()[1:], 7, 1000, "no frame"),
        (HEADER.encode(), 8, 1000, "collective 7"),
        (HEADER.encode(), 7, 999, "at most"),
        (FrameHeader(True, TEXT_BYTES_MAX + 1, 7, 0).encode(), 7, 1000, "at most"),
        (FrameHeader(True, 0, 7, 2**64 - 1).encode(), 7, 1000, "at most"),
    ],
)
def test_a_header_that_is_not_due_is_refused(
    data: bytes, sequence: int, payload_bytes_max: int, complaint: str
) -> None:
    with pytest.raises(MalformedFrameError, match=complaint):
        decode_header(data, sequence, payload_bytes_max)


@pytest.mark.parametrize(
    ("calls", "text"),
    [
        (["a", "b"], "client 0 called a; client 1 called b"),
        (["a", "a", "b"], "client 0 called a; client 2 called b"),
        (["a", "b", "b", "b"], "client 0 called a; client 1 called b"),
        (["a", "b", "c", "a"], "client 0 called a; client 1 called b; client 2 called c; client 3 called a"),
    ],
)
def test_who_called_what_is_told(calls: list[str], text: str) -> None:
    assert agreement_of(*calls) == Agreement(False, text)


def test_equal_calls_agree() -> None:
    assert agreement_of("a", "a", "a") == Agreement(True, "a")


def test_the_text_stays_within_its_bound_however_many_differ() -> None:
    agreement = agreement_of(*(f"all_reduce(sum, int32[{n}])" for n in range(1000)))
    assert not agreement.agreed
    assert len(agreement.text.encode()) <= TEXT_BYTES_MAX
