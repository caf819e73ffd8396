"""One client's part in the ring: its two links, the merge that runs over them, then the program's collectives.

The merge takes two all-reduces where DTensor's TPU initialisation has one: the first carries the type and the number of
each client's devices, which gives every client its offset; the second carries the rows themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ...devices.base import LocalDevice
from ...errors import BringupError
from ...transport.addresses import Address
from ...transport.attempts import Trouble, TroubleKind
from ...transport.collectives.neighbours import Neighbours, RingBrokenError
from ...transport.collectives.ring import Ring
from ...transport.ports import ConnectionClosedError, Link, LinkIdentity, LinkListener, Network
from ...transport.wire.messages import MemberInfo
from ..machines.core_table import CoreTable, counts_of, own_entry, own_rows, shared_device, table_of
from ..machines.device_claims import own_claims, shared_error
from ..machines.failure_errors import collective_without
from ..machines.peer import events as ev
from ..machines.peer.config import PeerConfig


class RingDriver:
    """The ring of one client. Used on the peer's loop, but for `ring`.

    Args:
        config: of the peer.
        network: how to reach the neighbours; `None` for a job of one client.
        inbox: of the peer.
        spawn: runs a coroutine as long as the peer lives.
        abort: ends this client's part with an error.
        watch: begins to watch the neighbours in the group, given its links, in a job with several groups.
    """

    def __init__(
        self,
        config: PeerConfig,
        network: Network | None,
        inbox: asyncio.Queue[ev.PeerEvent | None],
        spawn: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]],
        abort: Callable[[BaseException], None],
        watch: Callable[[Link, Link], None],
    ) -> None:
        self._config = config
        self._network = network
        self._inbox = inbox
        self._spawn = spawn
        self._abort = abort
        self._watch = watch
        self._outgoing: Link | None = None
        self._ring: Ring | None = None

    @property
    def ring(self) -> Ring:
        """The ring; there is one once the job is up."""
        assert self._ring is not None
        return self._ring

    async def connect(self, effect: ev.ConnectRing, listener: LinkListener | None) -> None:
        """Open the links, and run the ring."""
        config = self._config
        if self._network is None or listener is None:
            self._begin(Ring(config.client_id, effect.place))
            return await self._inbox.put(ev.RingConnected(effect.tag))

        def identity(client_id: int, incarnation: int) -> LinkIdentity:
            return LinkIdentity(effect.job_id, effect.epoch, client_id, incarnation)

        own = identity(config.client_id, config.incarnation)
        left, right = (identity(m.client_id, m.incarnation) for m in (effect.left, effect.right))
        accepting = self._spawn(listener.accept(own, left))

        def report(trouble: Trouble) -> None:
            is_refused = trouble.kind is TroubleKind.REFUSED
            self._inbox.put_nowait(ev.LinkDelayed(right.client_id, trouble.text, is_refused))

        try:
            address = Address.parse(effect.right.link_address)
            outgoing = await self._network.connect_link(address, own, right, report)
        except ConnectionClosedError as error:
            return await self._inbox.put(ev.LinkBroken(right.client_id, str(error)))
        self._outgoing = outgoing
        incoming = await accepting
        group = Neighbours(left.client_id, incoming, right.client_id, outgoing)
        self._begin(Ring(config.client_id, effect.place, group, on_half_way=self._on_half_way))
        if effect.place.count > 1:
            self._watch(incoming, outgoing)
        for neighbour, link in ((left, incoming), (right, outgoing)):
            self._spawn(self._watch_link(neighbour.client_id, link))
        return await self._inbox.put(ev.RingConnected(effect.tag))

    async def merge(self, effect: ev.Merge, device_type: str) -> None:
        """Merge the devices of all clients."""
        try:
            table = await self._merge(effect.devices, device_type)
            self.ring.begin_program()
            await self._inbox.put(ev.Merged(effect.tag, table))
        except BringupError as error:
            await self._inbox.put(ev.MergeFailed(effect.tag, error))

    async def _merge(self, devices: Sequence[LocalDevice], device_type: str) -> CoreTable:
        """Return the job's table of devices, the same on every client.

        Where two clients have brought up the same device, a third all-reduce tells all clients its name and hosts.

        Raises:
            TopologyError: the merged table is not sound, or two clients have brought up the same device.
            CollectiveMismatchError: the clients disagree on the number of devices.
        """
        own, all_reduce = self._config, self.ring.all_reduce
        entries = await all_reduce(own_entry(own.client_id, own.num_clients, device_type, len(devices)))
        counts = counts_of(entries, allow_empty=own.allow_empty)
        rows = await all_reduce(own_rows(own.client_id, counts, devices, share_devices=own.share_devices))
        if (shared := shared_device(counts, rows)) is not None:
            claims = await all_reduce(own_claims(own.client_id, own.hostname, devices, shared))
            raise shared_error(shared, claims)
        return table_of(counts, rows)

    def stop_after(self, leaver: MemberInfo, collectives: int) -> None:
        """Fail the collectives beyond those of a leaving client; the job goes on."""
        own = self._config.client_id
        before = self.ring.of_bring_up
        last = max(collectives - before, 0)
        self.ring.stop_after(collectives, lambda number: collective_without(leaver, last, own, number - before))

    def end(self, error: Callable[[], BaseException]) -> None:
        """Have all pending and later collectives raise what `error` returns. Idempotent."""
        if self._ring is not None:
            self._ring.end(error)

    def close(self) -> None:
        """End the link to the right neighbour; the left one's is its to end."""
        if self._outgoing is not None:
            self._outgoing.close()

    def _begin(self, ring: Ring) -> None:
        self._ring = ring
        self._spawn(self._run(ring))

    async def _run(self, ring: Ring) -> None:
        try:
            await ring.run()
        except RingBrokenError as broken:
            await self._inbox.put(ev.LinkBroken(broken.client_id, broken.cause))

    def _on_half_way(self, error: BaseException) -> None:
        self._abort(BringupError(f"all_reduce() ended half-way: {type(error).__name__}: {error}"))

    async def _watch_link(self, client_id: int, link: Link) -> None:
        await self._inbox.put(ev.LinkBroken(client_id, await link.wait_closed()))
