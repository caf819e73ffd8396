"""Collectives over the ring of TCP streams, peer i -> peer (i + 1) mod n."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import CollectiveMismatchError, ConfigurationError
from ..ports import ConnectionClosedError, Link
from ..texts import printable
from .frames import HEADER_BYTES, Agreement, FrameHeader, MalformedFrameError, decode_header
from .packing import Packing, reduce_into
from .schedule import chunk_bounds, steps
from .turns import Broadcast, Contribution, Part, Turn, Turns, Withdrawn

Array = npt.NDArray[Any]

_SMALL_BYTES_MAX = 64 * 1024
"""Up to this size an array goes once around the ring to be reduced and once to be handed out, whole.

That is 2 n - 1 messages in all, about as many hops one after the other as the chunked all-reduce has, which takes n
times as many messages: where many clients share a machine, messages are what it costs.
"""

_SEGMENT_BYTES = 256 * 1024
"""Of a chunk, reduced at a time, while the kernel takes in the next; or of what is broadcast, passed on at a time."""

BROADCAST_BYTES_MAX = 64 * 1024 * 1024
"""Of one broadcast: some hundred bytes for each of half a million clients."""

_BROADCAST = "broadcast()"


class RingBrokenError(Exception):
    """The link with client `client_id` ended in the middle of a collective, or carried something else."""

    def __init__(self, client_id: int, cause: str) -> None:
        super().__init__(cause)
        self.client_id = client_id
        self.cause = cause


def _bytes_of(array: Array) -> memoryview:
    return memoryview(array.view(np.uint8).data)


def _joined(buffers: tuple[Array, ...]) -> bytearray:
    return bytearray().join(map(_bytes_of, buffers))


def _agreement(header: FrameHeader, text: bytearray) -> Agreement:
    return Agreement(header.agreed, printable(text.decode(errors="replace")))


def _first(group: BaseExceptionGroup[RingBrokenError]) -> RingBrokenError:
    error = group.exceptions[0]
    return error if isinstance(error, RingBrokenError) else _first(error)


class Ring:
    """One client's place in the ring. Collectives run one at a time, in the order in which they were called.

    Who calls one takes a place in that order at once (`enter`), whatever becomes of the call afterwards; `run` carries
    them out. So the n-th call of one client always meets the n-th of all others, also where one is cancelled, times out
    or is refused on one client alone: there it is `Withdrawn`, and all others get a `CollectiveMismatchError`.

    A collective that fails half-way leaves the streams in an unknown state: no other is begun then. The links stay
    open: ending them at once would make the neighbours take this client for the cause.

    Args:
        rank: of this client.
        size: of the ring.
        incoming: from the left neighbour; `None` in a ring of one.
        outgoing: to the right neighbour; `None` in a ring of one.
        on_half_way: called, on the loop that this is made on, where a call ended while the others may get its result.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        incoming: Link | None,
        outgoing: Link | None,
        on_half_way: Callable[[BaseException], None] = lambda _: None,
    ) -> None:
        assert size == 1 or (incoming is not None and outgoing is not None)
        self._rank = rank
        self._size = size
        self._incoming = incoming
        self._outgoing = outgoing
        self._on_half_way = on_half_way
        self._number = 0
        self._of_bring_up = 0
        self._is_broken = False
        self._turns = Turns(self._break_off)

    @property
    def called(self) -> int:
        """The number of this client's collectives so far, the bring-up's included. On any thread."""
        return self._turns.called

    def enter(self) -> AbstractContextManager[Turn]:
        """Take the next place in the order; see `Turns.enter`. Called on any thread."""
        return self._turns.enter()

    def end(self, error: Callable[[], BaseException]) -> None:
        """End all calls, pending and future, with an exception that `error` makes. Idempotent."""
        self._turns.end(error)

    def begin_program(self) -> None:
        """Number the collectives of the program from here on: its first is 1."""
        self._of_bring_up = self._turns.called

    @property
    def of_bring_up(self) -> int:
        """The number of the bring-up's collectives, the same on every client; later ones are the program's."""
        return self._of_bring_up

    def stop_after(self, last: int, error: Callable[[int], BaseException]) -> None:
        """End all calls beyond the `last`-th; see `Turns.stop_after`."""
        self._turns.stop_after(last, error)

    async def run(self) -> None:
        """Carry out the collectives until cancelled.

        Raises:
            RingBrokenError: a neighbour went away, or sent something else than what is due.
        """
        while True:
            self._number, part = await self._turns.next()
            if self._is_broken:
                await asyncio.get_running_loop().create_future()  # who was told ends this
            try:
                self._turns.finish(await self._carry_out(part))
            except CollectiveMismatchError as error:  # found out at a frame's end: the streams are in step
                self._turns.finish(error)

    async def all_reduce(self, array: Array, op: str = "sum") -> Array:
        """Reduce `array` element by element over all clients, from the loop that `run` runs on.

        Args:
            array: any shape, any numeric dtype; the same on every client.
            op: see `Packing`.

        Returns:
            A new array of the input's shape and dtype, with the same bits on every client.

        Raises:
            ConfigurationError: the dtype is not numeric, or there is no such operation.
            CollectiveMismatchError: another client called something else; nobody gets a result.
        """
        with self.enter() as turn:
            packing = Packing(op, [array])
            turn.give(Contribution(f"all_reduce({op}, {packing.describe()})", packing.reduction, packing.pack()))
            totals: tuple[Array, ...] = await asyncio.wrap_future(turn.result)
            return packing.unpack(totals)[0]

    async def broadcast(self, data: bytes | None) -> bytes:
        """Hand bytes of client 0 to all clients, from the loop that `run` runs on; every link carries them once.

        Args:
            data: up to `BROADCAST_BYTES_MAX` bytes on client 0, `None` on all others.

        Returns:
            Client 0's bytes.

        Raises:
            ConfigurationError: they are too many.
            CollectiveMismatchError: another client called something else; nobody gets a result.
        """
        assert (data is None) == (self._rank != 0), "the bytes are client 0's to give"
        with self.enter() as turn:
            if data is not None and len(data) > BROADCAST_BYTES_MAX:
                raise ConfigurationError(f"broadcast takes up to {BROADCAST_BYTES_MAX} bytes, got {len(data)}")
            turn.give(Broadcast(_BROADCAST, data or b""))
            (received,) = await asyncio.wrap_future(turn.result)
            return received.tobytes()

    def _break_off(self, error: BaseException) -> None:
        if self._size > 1:  # alone, nobody gets what another does not
            self._is_broken = True
            self._on_half_way(error)

    async def _carry_out(self, part: Part) -> tuple[Array, ...]:
        if isinstance(part, Contribution):
            return await self._reduce(part)
        agreement, _ = await self._gather(part, ())
        data = memoryview(part.data) if isinstance(part, Broadcast) else memoryview(b"")
        received = await self._spread(agreement, data, BROADCAST_BYTES_MAX)
        return (np.frombuffer(received, np.uint8, len(received)),)

    async def _reduce(self, part: Contribution) -> tuple[Array, ...]:
        """Reduce the small buffers with the frames of the agreement, and then each of the others in chunks."""
        buffers = part.buffers
        small_bytes_max = _SMALL_BYTES_MAX // max(len(buffers), 1)
        small = tuple(buffer for buffer in buffers if buffer.nbytes <= small_bytes_max)
        agreement, reduced = await self._gather(part, small)
        payload = await self._spread(agreement, memoryview(_joined(reduced)), _SMALL_BYTES_MAX)
        totals = dict(zip(map(id, small), self._split(payload, small), strict=True))
        for buffer in buffers:
            if id(buffer) not in totals:
                totals[id(buffer)] = await self._reduce_chunks(buffer, part.reduction)
        return tuple(totals[id(buffer)] for buffer in buffers)

    async def _gather(self, part: Part, own: tuple[Array, ...]) -> tuple[Agreement, tuple[Array, ...]]:
        """Bring calls and buffers once around, from client 0 on, which gets the agreement of all and the totals."""
        takes_part = not isinstance(part, Withdrawn)
        agreement, totals = Agreement.of(part.call, takes_part=takes_part), own
        if self._size == 1:
            return agreement, totals
        if self._rank > 0:
            so_far, payload = await self._receive_frame()
            agreement = so_far.join(self._rank, part.call)
            if agreement.agreed and isinstance(part, Contribution):
                for sum_so_far, buffer in zip(self._split(payload, own), own, strict=True):
                    reduce_into(part.reduction, sum_so_far, buffer, buffer)
        await self._send_frame(agreement, _joined(totals))
        if self._rank == 0:
            agreement, payload = await self._receive_frame()
            totals = self._split(payload, own) if agreement.agreed else own
        return agreement, totals

    async def _spread(self, agreement: Agreement, data: memoryview, bytes_max: int) -> bytes | bytearray | memoryview:
        """Hand client 0's bytes on, with the agreement of all; returns them.

        Raises:
            CollectiveMismatchError: the clients called different things.
        """
        received: bytearray | memoryview = data
        if self._rank > 0:
            header, text = await self._receive_head(bytes_max)
            agreement = _agreement(header, text)
            received = bytearray(header.payload_bytes)
            await self._relay(header, text, memoryview(received))
        elif self._size > 1:
            await self._send_frame(agreement, data)
        if not agreement.agreed:
            number = self._number - self._of_bring_up
            raise CollectiveMismatchError(
                f"clients called different collectives (collective {number} of this job): {agreement.text}. "
                "All clients must call the same collectives in the same order."
            )
        return received

    async def _relay(self, header: FrameHeader, text: bytearray, payload: memoryview) -> None:
        """Receive the payload, and hand it on segment by segment; the head goes with the first."""
        is_last = self._rank == self._size - 1
        head = header.encode() + text
        for start in range(0, max(len(payload), 1), _SEGMENT_BYTES):
            segment = payload[start : start + _SEGMENT_BYTES]
            await self._receive(segment)
            if not is_last:
                await self._send(head + segment if start == 0 else segment)

    def _split(self, payload: bytes | bytearray | memoryview, own: tuple[Array, ...]) -> tuple[Array, ...]:
        """Return the buffers in a frame, which are like this client's own.

        Raises:
            RingBrokenError: they are not.
        """
        if len(payload) != sum(buffer.nbytes for buffer in own):
            raise RingBrokenError(
                (self._rank - 1) % self._size,
                f"the frame of collective {self._number} has {len(payload)} bytes of data",
            )
        parts, start = [], 0
        for buffer in own:
            parts.append(np.frombuffer(payload, buffer.dtype, buffer.size, start))
            start += buffer.nbytes
        return tuple(parts)

    async def _reduce_chunks(self, data: Array, reduction: np.ufunc) -> Array:
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

    async def _receive_chunk(self, target: Array, reduction: np.ufunc | None) -> None:
        if reduction is None:
            return await self._receive(_bytes_of(target))
        # In segments, so that one is reduced while the kernel takes in the next.
        length = max(1, _SEGMENT_BYTES // target.itemsize)
        segment = np.empty(min(length, target.size), target.dtype)
        for start in range(0, target.size, length):
            part = target[start : start + length]
            arrived = segment[: part.size]
            await self._receive(_bytes_of(arrived))
            reduce_into(reduction, arrived, part, part)
        return None

    async def _send_frame(self, agreement: Agreement, payload: bytearray | memoryview) -> None:
        text = agreement.text.encode(errors="replace")
        body = memoryview(payload if agreement.agreed else b"")
        header = FrameHeader(agreement.agreed, len(text), self._number, len(body))
        await self._send(header.encode() + text + body[:_SEGMENT_BYTES])
        if len(body) > _SEGMENT_BYTES:
            await self._send(body[_SEGMENT_BYTES:])

    async def _receive_frame(self) -> tuple[Agreement, bytearray]:
        header, text = await self._receive_head(_SMALL_BYTES_MAX)
        payload = bytearray(header.payload_bytes)
        await self._receive(memoryview(payload))
        return _agreement(header, text), payload

    async def _receive_head(self, payload_bytes_max: int) -> tuple[FrameHeader, bytearray]:
        head = bytearray(HEADER_BYTES)
        await self._receive(memoryview(head))
        try:
            header = decode_header(head, self._number, payload_bytes_max)
        except MalformedFrameError as error:
            raise RingBrokenError((self._rank - 1) % self._size, str(error)) from None
        text = bytearray(header.text_bytes)
        await self._receive(memoryview(text))
        return header, text

    async def _send(self, data: bytes | memoryview) -> None:
        assert self._outgoing is not None
        try:
            await self._outgoing.send(data)
        except ConnectionClosedError as error:
            raise RingBrokenError((self._rank + 1) % self._size, str(error)) from None

    async def _receive(self, buffer: memoryview) -> None:
        assert self._incoming is not None
        if not len(buffer):
            return
        try:
            await self._incoming.receive_into(buffer)
        except ConnectionClosedError as error:
            raise RingBrokenError((self._rank - 1) % self._size, str(error)) from None
