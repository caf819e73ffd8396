"""One client's two links in one ring, and the frames that they carry."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..ports import ConnectionClosedError, Link
from .agreement import Agreement, MalformedFrameError, decode_agreement
from .frames import HEADER_BYTES, FrameHeader, decode_header

Array = npt.NDArray[Any]


class RingBrokenError(Exception):
    """The link with client `client_id` ended in the middle of a collective, or carried something else."""

    def __init__(self, client_id: int, cause: str) -> None:
        super().__init__(cause)
        self.client_id = client_id
        self.cause = cause


class Neighbours:
    """The two neighbours of a client in a ring, which may be the same client.

    Args:
        left: the client id of the left neighbour.
        incoming: the link from it.
        right: the client id of the right neighbour.
        outgoing: the link to it.
    """

    def __init__(self, left: int, incoming: Link, right: int, outgoing: Link) -> None:
        self.left = left
        self.incoming = incoming
        self.right = right
        self.outgoing = outgoing

    async def send(self, data: bytes | memoryview) -> None:
        """Send bytes to the right neighbour.

        Raises:
            RingBrokenError: the link has ended.
        """
        try:
            await self.outgoing.send(data)
        except ConnectionClosedError as error:
            raise RingBrokenError(self.right, str(error)) from None

    async def receive(self, buffer: memoryview) -> None:
        """Fill `buffer` from the left neighbour.

        Raises:
            RingBrokenError: the link has ended.
        """
        if not len(buffer):
            return
        try:
            await self.incoming.receive_into(buffer)
        except ConnectionClosedError as error:
            raise RingBrokenError(self.left, str(error)) from None

    async def send_frame(self, number: int, agreement: Agreement, value: bytearray) -> None:
        """Send a frame of collective `number`; the value is left out where the clients do not agree."""
        body = value if agreement.agreed else b""
        await self.send(head_of(number, agreement, len(body)) + body)

    async def receive_head(self, number: int, payload_bytes_max: int) -> tuple[Agreement, int]:
        """Receive the head of a frame of collective `number`; returns the agreement, and the size of the payload.

        Raises:
            RingBrokenError: the link has ended, or carries something else.
        """
        data = bytearray(HEADER_BYTES)
        await self.receive(memoryview(data))
        try:
            header = decode_header(data, number, payload_bytes_max)
            text = bytearray(header.agreement_bytes)
            await self.receive(memoryview(text))
            return decode_agreement(text), header.payload_bytes
        except MalformedFrameError as error:
            raise RingBrokenError(self.left, str(error)) from None

    async def receive_frame(self, number: int, payload_bytes_max: int) -> tuple[Agreement, bytearray]:
        """Receive a frame of collective `number`, whole; raises as `receive_head`."""
        agreement, payload_bytes = await self.receive_head(number, payload_bytes_max)
        payload = bytearray(payload_bytes)
        await self.receive(memoryview(payload))
        return agreement, payload


def head_of(number: int, agreement: Agreement, payload_bytes: int) -> bytes:
    """Return the head of a frame: all of it but the payload."""
    text = agreement.encode()
    return FrameHeader(len(text), number, payload_bytes).encode() + text


def bytes_of(array: Array) -> memoryview:
    """Return the memory of an array of one dimension."""
    return memoryview(array.view(np.uint8).data)
