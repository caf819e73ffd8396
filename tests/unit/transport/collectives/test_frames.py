"""Frames of the collectives."""

from __future__ import annotations

import pytest

from bringup.transport.collectives.agreement import AGREEMENT_BYTES_MAX, MalformedFrameError
from bringup.transport.collectives.frames import HEADER_BYTES, FrameHeader, decode_header

HEADER = FrameHeader(agreement_bytes=12, sequence=7, payload_bytes=1000)


@pytest.mark.parametrize("header", [HEADER, FrameHeader(0, 1, 0), FrameHeader(AGREEMENT_BYTES_MAX, 2**40, 2**63)])
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
        (FrameHeader(AGREEMENT_BYTES_MAX + 1, 7, 0).encode(), 7, 1000, "at most"),
        (FrameHeader(0, 7, 2**64 - 1).encode(), 7, 1000, "at most"),
    ],
)
def test_a_header_that_is_not_due_is_refused(
    data: bytes, sequence: int, payload_bytes_max: int, complaint: str
) -> None:
    with pytest.raises(MalformedFrameError, match=complaint):
        decode_header(data, sequence, payload_bytes_max)
