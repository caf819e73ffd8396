"""Headers of the collectives' frames. Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from .agreement import AGREEMENT_BYTES_MAX, MalformedFrameError

_MAGIC = b"brng"
# magic, bytes of the agreement, sequence number of the collective, bytes of payload
_HEADER = struct.Struct("!4sIQQ")
HEADER_BYTES = _HEADER.size


@dataclass(frozen=True, slots=True)
class FrameHeader:
    """The header of a frame with an agreement and a payload; sizes in bytes."""

    agreement_bytes: int
    sequence: int
    payload_bytes: int

    def encode(self) -> bytes:
        """Return the `HEADER_BYTES` bytes of this header."""
        return _HEADER.pack(_MAGIC, self.agreement_bytes, self.sequence, self.payload_bytes)


def decode_header(data: bytes | bytearray, sequence: int, payload_bytes_max: int) -> FrameHeader:
    """Return the header in `data`.

    Raises:
        MalformedFrameError: it is none, is not of collective number `sequence`, or announces more than is allowed.
    """
    magic, agreement_bytes, found, payload_bytes = _HEADER.unpack(data)
    if magic != _MAGIC:
        raise MalformedFrameError(f"expected the frame of collective {sequence}, got bytes that are no frame")
    if found != sequence:
        raise MalformedFrameError(f"expected the frame of collective {sequence}, got that of collective {found}")
    if agreement_bytes > AGREEMENT_BYTES_MAX or payload_bytes > payload_bytes_max:
        raise MalformedFrameError(
            f"the frame of collective {sequence} announces {agreement_bytes} + {payload_bytes} bytes; "
            f"at most {AGREEMENT_BYTES_MAX} + {payload_bytes_max} are allowed"
        )
    return FrameHeader(agreement_bytes, sequence, payload_bytes)
