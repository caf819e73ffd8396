"""Collectives over the ring of a job, or, in a large job, over its groups' rings and that of their leaders."""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import CollectiveMismatchError
from ..wire.messages import GroupPlace
from .agreement import Agreement
from .neighbours import Neighbours, RingBrokenError, bytes_of, head_of
from .packing import Packing, reduce_into
from .schedule import Lane, RingOf, chunk_bounds, gathering, rings_of, spreading, steps
from .turns import Contribution, Part, Statement, Turn, Turns, Withdrawn

Array = npt.NDArray[Any]

_SMALL_BYTES_MAX = 64 * 1024
"""Up to this size an array is gathered and spread in one piece.

In a ring that is 2 n - 1 messages in all, about as many hops one after the other as the chunked all-reduce has, which
takes n times as many messages: where many clients share a machine, messages are what it costs.
"""

_SEGMENT_BYTES = 64 * 1024
"""Of what is longer, passed on at a time. The last client of a large job has waited for one segment per hop."""

_REDUCED_BYTES = 256 * 1024
"""Of a chunk, reduced at a time, while the kernel takes in the next."""

COLLECTED_BYTES_MAX = 64 * 1024 * 1024
"""Of all that is given to a collection, and of the answer: some hundred bytes for each of half a million clients."""

_COLLECT = "collect()"
_LENGTH = struct.Struct("!I")


class Ring:
    """One client's place in the ring. Collectives run one at a time, in the order in which they were called.

    Who calls one takes a place in that order at once (`enter`), whatever becomes of the call afterwards; `run` carries
    them out. So the n-th call of one client always meets the n-th of all others, also where one is cancelled, times out
    or is refused on one client alone: there it is `Withdrawn`, and all others get a `CollectiveMismatchError`.

    A collective that fails half-way leaves the streams in an unknown state: no other is begun then. The links stay
    open: ending them at once would make the neighbours take this client for the cause.

    Args:
        client_id: of this client.
        place: its group.
        neighbours: of this client in each ring that it is in: see `rings_of`.
        on_half_way: called, on the loop that this is made on, where a call ended while the others may get its result.
    """

    def __init__(
        self,
        client_id: int,
        place: GroupPlace,
        neighbours: Sequence[Neighbours] = (),
        on_half_way: Callable[[BaseException], None] = lambda _: None,
    ) -> None:
        self._client_id = client_id
        self._place = place
        self._neighbours = dict(zip(rings_of(client_id, place), neighbours, strict=True))
        self._gathering = gathering(client_id, place)
        self._spreading = spreading(client_id, place)
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

    async def collect(self, data: bytes, answer: Callable[[tuple[bytes, ...]], bytes]) -> bytes:
        """Bring bytes of all clients to client 0, and its answer to all, from the loop that `run` runs on.

        Every link carries what all before it gave once, and the answer once.

        Args:
            data: this client's; those of all together up to `COLLECTED_BYTES_MAX`, less 4 bytes for each.
            answer: returns the answer, of up to `COLLECTED_BYTES_MAX` bytes, to those of all by client id; called on
                client 0 alone.

        Returns:
            The answer, the same on every client.

        Raises:
            CollectiveMismatchError: another client called something else; nobody gets the answer.
        """
        with self.enter() as turn:
            stated = _LENGTH.pack(len(data)) + data
            turn.give(Statement(_COLLECT, stated, lambda gathered: answer(_parted(gathered))))
            (received,) = await asyncio.wrap_future(turn.result)
            return received.tobytes()

    def _break_off(self, error: BaseException) -> None:
        if self._neighbours:  # alone, nobody gets what another does not
            self._is_broken = True
            self._on_half_way(error)

    async def _carry_out(self, part: Part) -> tuple[Array, ...]:
        if isinstance(part, Contribution):
            return await self._reduce(part)
        own = bytearray(part.data if isinstance(part, Statement) else b"")
        agreement, gathered = await self._gather(part, own, COLLECTED_BYTES_MAX, lambda _, came, own: came + own)
        if self._client_id == 0 and agreement.agreed and isinstance(part, Statement):
            gathered = bytearray(part.answer(gathered))
        received = await self._spread(agreement, gathered, COLLECTED_BYTES_MAX)
        return (np.frombuffer(received, np.uint8, len(received)),)

    async def _reduce(self, part: Contribution) -> tuple[Array, ...]:
        """Reduce the small buffers with the frames of the agreement, and then each of the others."""
        buffers = part.buffers
        small_bytes_max = _SMALL_BYTES_MAX // max(len(buffers), 1)
        small = tuple(buffer for buffer in buffers if buffer.nbytes <= small_bytes_max)

        def reduced(sender: int, came: bytearray, value: bytearray) -> bytearray:
            totals = self._split(came, small, sender)
            if value:
                for earlier, later in zip(totals, self._split(value, small, sender), strict=True):
                    reduce_into(part.reduction, earlier, later, earlier)
            return came

        own = bytearray().join(map(bytes_of, small))
        agreement, gathered = await self._gather(part, own, _SMALL_BYTES_MAX, reduced)
        payload = await self._spread(agreement, gathered, _SMALL_BYTES_MAX)
        left = self._neighbours[self._spreading.receive].left if self._spreading.receive else self._client_id
        totals = dict(zip(map(id, small), self._split(payload, small, left), strict=True))
        for buffer in buffers:
            if id(buffer) not in totals:
                reduce = self._reduce_chunks if self._place.count == 1 else self._reduce_segments
                await reduce(buffer, part.reduction)
                totals[id(buffer)] = buffer
        return tuple(totals[id(buffer)] for buffer in buffers)

    async def _gather(
        self, part: Part, value: bytearray, bytes_max: int, join: Callable[[int, bytearray, bytearray], bytearray]
    ) -> tuple[Agreement, bytearray]:
        """Bring calls and values around; client 0 gets the agreement of all, and their values joined.

        Args:
            part: of this client.
            value: of this client.
            bytes_max: of all values joined.
            join: returns what came from a neighbour, given first, joined with the value so far, which may be empty.
        """
        takes_part = not isinstance(part, Withdrawn)
        agreement = Agreement.of(self._client_id, part.call, takes_part=takes_part)
        for hop in itertools.chain(*self._gathering):
            if hop.receive is not None:
                ring = self._neighbours[hop.receive]
                so_far, came = await ring.receive_frame(self._number, bytes_max)
                agreement = so_far + agreement if hop.add else so_far
                if agreement.agreed:
                    value = join(ring.left, came, value if hop.add else bytearray())
            for of in hop.send:
                await self._neighbours[of].send_frame(self._number, agreement, value)
        return agreement, value

    async def _spread(self, agreement: Agreement, payload: bytearray, bytes_max: int) -> bytearray:
        """Hand client 0's bytes on, segment by segment, with the agreement of all; returns them.

        Raises:
            CollectiveMismatchError: the clients called different things.
        """
        hop = self._spreading
        left = self._neighbours[hop.receive] if hop.receive is not None else None
        if left is not None:
            agreement, payload_bytes = await left.receive_head(self._number, bytes_max)
            payload = bytearray(payload_bytes)
        view = memoryview(payload if agreement.agreed else b"")
        head = head_of(self._number, agreement, len(view))
        for start in range(0, max(len(view), 1), _SEGMENT_BYTES):
            segment = view[start : start + _SEGMENT_BYTES]
            if left is not None:
                await left.receive(segment)
            for of in hop.send:
                await self._neighbours[of].send(head + segment if start == 0 else segment)
        if not agreement.agreed:
            number = self._number - self._of_bring_up
            raise CollectiveMismatchError(
                f"clients called different collectives (collective {number} of this job): {agreement.text}. "
                "All clients must call the same collectives in the same order."
            )
        return payload

    def _split(self, payload: bytearray, own: tuple[Array, ...], sender: int) -> tuple[Array, ...]:
        """Return the buffers in a frame, which are like this client's own.

        Raises:
            RingBrokenError: they are not.
        """
        if len(payload) != sum(buffer.nbytes for buffer in own):
            raise RingBrokenError(sender, f"the frame of collective {self._number} has {len(payload)} bytes of data")
        parts, start = [], 0
        for buffer in own:
            parts.append(np.frombuffer(payload, buffer.dtype, buffer.size, start))
            start += buffer.nbytes
        return tuple(parts)

    async def _reduce_segments(self, data: Array, reduction: np.ufunc) -> None:
        """Reduce a large array in place over several groups, all links at work at once."""
        try:
            async with asyncio.TaskGroup() as lanes:
                for lane in self._gathering:
                    lanes.create_task(self._take_lane(lane, data, reduction))
        except* RingBrokenError as broken:
            raise _first(broken) from None
        await self._take_lane((self._spreading,), data, reduction)

    async def _take_lane(self, lane: Lane, data: Array, reduction: np.ufunc) -> None:
        # A segment comes back only after the right neighbour has all of it: no lane changes what another still sends.
        length = max(1, _SEGMENT_BYTES // data.itemsize)
        for start in range(0, data.size, length):
            segment = data[start : start + length]
            for hop in lane:
                if hop.receive is not None:
                    await self._receive_array(hop.receive, segment, reduction if hop.add else None)
                for of in hop.send:
                    await self._neighbours[of].send(bytes_of(segment))

    async def _reduce_chunks(self, data: Array, reduction: np.ufunc) -> None:
        """Reduce a large array in place over one group."""
        size = self._place.last + 1
        bounds = chunk_bounds(data.size, size)
        for step in steps(self._client_id, size):
            outgoing = data[slice(*bounds[step.send])]
            incoming = data[slice(*bounds[step.receive])]
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._neighbours[RingOf.GROUP].send(bytes_of(outgoing)))
                    both.create_task(self._receive_array(RingOf.GROUP, incoming, reduction if step.reduce else None))
            except* RingBrokenError as broken:
                raise _first(broken) from None

    async def _receive_array(self, of: RingOf, target: Array, reduction: np.ufunc | None) -> None:
        ring = self._neighbours[of]
        if reduction is None:
            return await ring.receive(bytes_of(target))
        # In pieces, so that one is reduced while the kernel takes in the next.
        length = max(1, _REDUCED_BYTES // target.itemsize)
        piece = np.empty(min(length, target.size), target.dtype)
        for start in range(0, target.size, length):
            part = target[start : start + length]
            arrived = piece[: part.size]
            await ring.receive(bytes_of(arrived))
            reduce_into(reduction, arrived, part, part)
        return None


def _parted(gathered: bytearray) -> tuple[bytes, ...]:
    """Return what each client stated."""
    parts, start = [], 0
    while start < len(gathered):
        (length,) = _LENGTH.unpack_from(gathered, start)
        start += _LENGTH.size
        parts.append(bytes(gathered[start : start + length]))
        start += length
    return tuple(parts)


def _first(group: BaseExceptionGroup[RingBrokenError]) -> RingBrokenError:
    error = group.exceptions[0]
    return error if isinstance(error, RingBrokenError) else _first(error)
