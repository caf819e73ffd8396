"""Collectives over the ring of TCP streams, peer i -> peer (i + 1) mod n."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import CollectiveMismatchError, ConfigurationError
from .frames import HEADER_BYTES, Agreement, FrameHeader, MalformedFrameError, decode_header
from .ports import ChannelClosedError, Link
from .ring_schedule import chunk_bounds, steps
from .texts import printable

__all__ = ["Ring", "RingBrokenError"]

Array = npt.NDArray[Any]

_SMALL_BYTES_MAX = 64 * 1024
"""Up to this size an array goes once around the ring to be reduced and once to be handed out, whole.

That is 2 (n - 1) messages in all, as many hops one after the other as the chunked all-reduce has, which takes n times
as many messages: where many clients share a machine, messages are what it costs.
"""

_SEGMENT_BYTES = 256 * 1024

_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


class RingBrokenError(Exception):
    """The link with client `client_id` ended in the middle of a collective, or carried something else."""

    def __init__(self, client_id: int, cause: str) -> None:
        super().__init__(cause)
        self.client_id = client_id
        self.cause = cause


def _bytes_of(array: Array) -> memoryview:
    return memoryview(array.view(np.uint8).data)


def _first(group: BaseExceptionGroup[RingBrokenError]) -> RingBrokenError:
    error = group.exceptions[0]
    return error if isinstance(error, RingBrokenError) else _first(error)


class Ring:
    """One client's place in the ring. Collectives run one at a time, in the order in which they were called.

    A collective that fails or is cancelled half-way leaves the streams in an unknown state, so the ring is broken, and
    every later collective raises. Its links stay open until `close`: ending them at once would make the neighbours take
    this client for the cause.

    Attributes:
        is_broken: whether a collective ended half-way.
    """

    def __init__(self, rank: int, size: int, incoming: Link | None, outgoing: Link | None) -> None:
        assert size == 1 or (incoming is not None and outgoing is not None)
        self._rank = rank
        self._size = size
        self._incoming = incoming
        self._outgoing = outgoing
        self._sequence = 0
        self._turn = asyncio.Lock()
        self.is_broken = False

    async def all_reduce(self, array: Array, op: str = "sum") -> Array:
        """Reduce `array` element by element over all clients.

        Args:
            array: any shape, any numeric dtype; the same on every client.
            op: `sum`, `prod`, `min` or `max`.

        Returns:
            A new array of the input's shape and dtype, with the same bits on every client.

        Raises:
            ConfigurationError: the dtype is not numeric, or there is no such operation.
            CollectiveMismatchError: another client called something else; nobody gets a result.
            RingBrokenError: a neighbour went away, or an earlier collective ended half-way.
        """
        reduction = _REDUCTIONS.get(op)
        if reduction is None:
            raise ConfigurationError(f"all_reduce has no op {op!r}; it has {', '.join(_REDUCTIONS)}")
        if array.dtype.kind not in "biufc":
            raise ConfigurationError(f"all_reduce takes numeric arrays, got one of dtype {array.dtype}")
        own = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")).reshape(-1)
        call = f"all_reduce({op}, {array.dtype.name}{list(array.shape)})"
        async with self._turn:
            if self.is_broken:
                raise RingBrokenError(self._rank, "an earlier collective ended half-way")
            self._sequence += 1
            try:
                if own.nbytes <= _SMALL_BYTES_MAX:
                    total = await self._reduce_whole(call, own, reduction)
                else:
                    await self._reduce_whole(call, own[:0], reduction)
                    total = await self._reduce_chunks(own.copy(), reduction)
            except CollectiveMismatchError:
                raise  # found out at a frame's end: the streams are in step
            except BaseException:
                self.is_broken = True
                raise
        return total.reshape(array.shape).astype(array.dtype, copy=False)

    def close(self) -> None:
        """End both links. Idempotent."""
        for link in (self._incoming, self._outgoing):
            if link is not None:
                link.close()

    async def _reduce_whole(self, call: str, own: Array, reduction: Callable[..., Any]) -> Array:
        """Reduce along the ring from client 0 on, then hand the total on from the last client."""
        agreement, total = Agreement.of(call), own
        last = self._size - 1
        if self._rank > 0:
            so_far, payload = await self._receive_frame(max(own.nbytes, _SMALL_BYTES_MAX))
            agreement = so_far.join(self._rank, call)
            if agreement.agreed:
                total = reduction(np.frombuffer(payload, own.dtype), own)
        if self._rank < last:
            await self._send_frame(agreement, total)
            agreement, payload = await self._receive_frame(max(own.nbytes, _SMALL_BYTES_MAX))
            total = np.frombuffer(payload, own.dtype) if agreement.agreed else total
        if last > 0 and (self._rank + 1) % self._size != last:
            await self._send_frame(agreement, total)
        if not agreement.agreed:
            raise CollectiveMismatchError(
                f"clients called different collectives (collective {self._sequence} of this job): {agreement.text}. "
                "All clients must call the same collectives in the same order."
            )
        return total if total is not own else own.copy()

    async def _reduce_chunks(self, data: Array, reduction: Callable[..., Any]) -> Array:
        bounds = chunk_bounds(data.size, self._size)
        for step in steps(self._rank, self._size):
            outgoing = data[slice(*bounds[step.send])]
            incoming = data[slice(*bounds[step.receive])]
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._send(_bytes_of(outgoing)))
                    both.create_task(self._receive_chunk(incoming, reduction if step.reduce else None))
            except* RingBrokenError as broken:
                raise _first(broken) from None
        return data

    async def _receive_chunk(self, target: Array, reduction: Callable[..., Any] | None) -> None:
        if reduction is None:
            return await self._receive(_bytes_of(target))
        # In segments, so that one is reduced while the kernel takes in the next.
        length = max(1, _SEGMENT_BYTES // target.itemsize)
        segment = np.empty(min(length, target.size), target.dtype)
        for start in range(0, target.size, length):
            part = target[start : start + length]
            arrived = segment[: part.size]
            await self._receive(_bytes_of(arrived))
            reduction(arrived, part, out=part)
        return None

    async def _send_frame(self, agreement: Agreement, payload: Array) -> None:
        text = agreement.text.encode()
        body = payload.tobytes() if agreement.agreed else b""
        header = FrameHeader(agreement.agreed, len(text), self._sequence, len(body))
        await self._send(header.encode() + text + body)

    async def _receive_frame(self, payload_bytes_max: int) -> tuple[Agreement, bytearray]:
        head = bytearray(HEADER_BYTES)
        await self._receive(memoryview(head))
        try:
            header = decode_header(head, self._sequence, payload_bytes_max)
        except MalformedFrameError as error:
            raise RingBrokenError((self._rank - 1) % self._size, str(error)) from None
        text, payload = bytearray(header.text_bytes), bytearray(header.payload_bytes)
        await self._receive(memoryview(text))
        await self._receive(memoryview(payload))
        return Agreement(header.agreed, printable(text.decode(errors="replace"))), payload

    async def _send(self, data: bytes | memoryview) -> None:
        assert self._outgoing is not None
        try:
            await self._outgoing.send(data)
        except ChannelClosedError as error:
            raise RingBrokenError((self._rank + 1) % self._size, str(error)) from None

    async def _receive(self, buffer: memoryview) -> None:
        assert self._incoming is not None
        if not len(buffer):
            return
        try:
            await self._incoming.receive_into(buffer)
        except ChannelClosedError as error:
            raise RingBrokenError((self._rank - 1) % self._size, str(error)) from None
