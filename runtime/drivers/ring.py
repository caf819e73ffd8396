"""One client's part in the rings of a job: its links, the merge that runs over them, then the program's collectives.

The merge is one collection, where DTensor's TPU initialisation has an all-reduce: client 0 hands out what all clients
report of their devices, and the roster with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ...errors import AuthenticationError, BringupError
from ...transport.addresses import Address
from ...transport.attempts import Trouble, TroubleKind
from ...transport.collectives.neighbours import Neighbours, RingBrokenError
from ...transport.collectives.ring import Ring
from ...transport.ports import ConnectionClosedError, Link, LinkIdentity, LinkListener, Network
from ...transport.wire.control import decode, encode
from ...transport.wire.messages import MemberInfo, Merger
from ..machines.core_table import CoreTable, Reports, own_report
from ..machines.device_claims import own_claims, shared_error
from ..machines.failure_errors import collective_without
from ..machines.peer import events as ev
from ..machines.peer.config import PeerConfig
from ..machines.roster import Roster


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
        self._outgoing: list[Link] = []
        self._ring: Ring | None = None

    @property
    def ring(self) -> Ring:
        """The ring; there is one once the job is up."""
        assert self._ring is not None
        return self._ring

    async def connect(self, effect: ev.ConnectRing, listener: LinkListener | None) -> None:
        """Open the links of all rings that this client is in, and run the collectives over them."""
        config, pairs = self._config, _pairs(effect, self._config.client_id)
        if not pairs:
            return await self._begin(effect, Ring(config.client_id, effect.place))
        assert listener is not None
        own = LinkIdentity(effect.job_id, effect.epoch, config.client_id, config.incarnation)
        lefts = [_identity_of(effect, left) for left, _ in pairs]
        linking = []
        for left, right in pairs:
            others = [other for other in lefts if other.client_id != left.client_id]
            accepting = self._spawn(listener.accept(own, _identity_of(effect, left), *others))
            linking.append((self._spawn(self._open(own, _identity_of(effect, right), right.link_address)), accepting))
        rings = []
        for (left, right), (opening, accepting) in zip(pairs, linking, strict=True):
            if (outgoing := await opening) is None:
                return None
            rings.append(Neighbours(left.client_id, await accepting, right.client_id, outgoing))
        if effect.place.count > 1:
            self._watch(rings[0].incoming, rings[0].outgoing)
        for ring in rings:
            self._spawn(self._watch_link(ring.left, ring.incoming))
            self._spawn(self._watch_link(ring.right, ring.outgoing))
        return await self._begin(effect, Ring(config.client_id, effect.place, rings, self._on_half_way))

    async def _open(self, own: LinkIdentity, right: LinkIdentity, address: str) -> Link | None:
        """Open the link to a right neighbour; `None` once it is told that there will be none."""
        assert self._network is not None

        def report(trouble: Trouble) -> None:
            is_refused = trouble.kind is TroubleKind.REFUSED
            self._inbox.put_nowait(ev.LinkDelayed(right.client_id, trouble.text, is_refused))

        try:
            link = await self._network.connect_link(Address.parse(address), own, right, report)
        except AuthenticationError as error:
            await self._inbox.put(ev.LinkUntrusted(right.client_id, str(error)))
            return None
        except ConnectionClosedError as error:
            await self._inbox.put(ev.LinkBroken(right.client_id, str(error)))
            return None
        self._outgoing.append(link)
        return link

    async def merge(self, effect: ev.Merge, device_type: str) -> None:
        """Merge the devices of all clients."""
        try:
            roster, table = await self._merge(effect, device_type)
            self.ring.begin_program()
            await self._inbox.put(ev.Merged(effect.tag, table, roster))
        except BringupError as error:
            await self._inbox.put(ev.MergeFailed(effect.tag, error))

    async def _merge(self, effect: ev.Merge, device_type: str) -> tuple[Roster, CoreTable]:
        """Return the roster and the job's table of devices, the same on every client.

        An all-reduce tells the name and the hosts of a device that two clients have brought up.

        Raises:
            TopologyError: the merged table is not sound, or two clients have brought up the same device.
        """
        own, devices = self._config, effect.devices
        report = own_report(own.client_id, own.num_clients, device_type, devices, share_devices=own.share_devices)
        answer = await self.ring.collect(report, lambda reports: encode(Merger(effect.roster, reports)))
        merger = decode(answer)
        assert isinstance(merger, Merger), "client 0 hands out something else than the merge"
        reports = Reports(merger.reports)
        reports.check(allow_empty=own.allow_empty)
        if (shared := reports.shared_device()) is not None:
            claims = await self.ring.all_reduce(own_claims(own.client_id, own.hostname, devices, shared))
            raise shared_error(shared, claims)
        return Roster(merger.roster), reports.table()

    def stop_after(self, leaver: Callable[[], MemberInfo], collectives: int) -> None:
        """Fail the collectives beyond those of a leaving client; the job goes on."""
        own = self._config.client_id
        before = self.ring.of_bring_up
        last = max(collectives - before, 0)
        self.ring.stop_after(collectives, lambda number: collective_without(leaver(), last, own, number - before))

    def end(self, error: Callable[[], BaseException]) -> None:
        """Have all pending and later collectives raise what `error` returns. Idempotent."""
        if self._ring is not None:
            self._ring.end(error)

    def close(self) -> None:
        """End the links to the right neighbours; the left ones' are theirs to end."""
        for link in self._outgoing:
            link.close()

    async def _begin(self, effect: ev.ConnectRing, ring: Ring) -> None:
        self._ring = ring
        self._spawn(self._run(ring))
        await self._inbox.put(ev.RingConnected(effect.tag))

    async def _run(self, ring: Ring) -> None:
        try:
            await ring.run()
        except RingBrokenError as broken:
            await self._inbox.put(ev.LinkBroken(broken.client_id, broken.cause))

    def _on_half_way(self, error: BaseException) -> None:
        self._abort(BringupError(f"all_reduce() ended half-way: {type(error).__name__}: {error}"))

    async def _watch_link(self, client_id: int, link: Link) -> None:
        await self._inbox.put(ev.LinkBroken(client_id, await link.wait_closed()))


def _pairs(effect: ev.ConnectRing, own: int) -> list[tuple[MemberInfo, MemberInfo]]:
    """Return the left and the right neighbour in each ring that the client is in, that of its group first."""
    pairs = zip(effect.neighbours[::2], effect.neighbours[1::2], strict=True)
    return [(left, right) for left, right in pairs if left.client_id != own]


def _identity_of(effect: ev.ConnectRing, member: MemberInfo) -> LinkIdentity:
    return LinkIdentity(effect.job_id, effect.epoch, member.client_id, member.incarnation)
