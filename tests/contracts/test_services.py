"""The coordination services between peers, over every network: nothing is lost or doubled when links break."""

from __future__ import annotations

import asyncio
import random

import pytest

from bringup.errors import BarrierTimeoutError, BringupError, PeerFailedError
from bringup.runtime.drivers import service_transport
from bringup.runtime.kv import KeyValueStore
from bringup.runtime.machines.kv import lists as kv_lists
from bringup.runtime.machines.session.table import SessionTable
from bringup.transport.addresses import Address
from bringup.transport.ports import ConnectionClosedError, Frame, LinkIdentity
from bringup.transport.wire.framing import encode_parts
from bringup.transport.wire.services import GetKey, Value
from bringup.transport.wire.session_messages import Acknowledge, OpenSession

from .peers import JobOfPeers, job_of_peers
from .places import MemoryPlace, Place, identity

N = 4


def stores(job: JobOfPeers) -> list[KeyValueStore]:
    return [KeyValueStore(job.services[i], job.peers[i].waiting) for i in range(N)]


def break_link(place: Place, job: JobOfPeers, client_id: int) -> None:
    """Break the link of one client to the services, where it has one."""
    if isinstance(place, MemoryPlace):
        place.hub.disconnect(f"host-{client_id}:9000", str(place.coordinator))
        return
    link = job.services[client_id].calls().route.link
    if link is not None:
        link._transport.abort()


async def test_all_see_what_one_has_set(place: Place) -> None:
    async with job_of_peers(place, N) as job:
        job.start()
        await job.ups()
        waiting = [asyncio.create_task(store.get("a/b", timeout=10.0)) for store in stores(job)]
        await stores(job)[1].set("///a//b/", b"it")
        assert await asyncio.gather(*waiting) == [b"it"] * N
        assert await stores(job)[3].list("a") == {"a/b": b"it"}
        numbers = await asyncio.gather(*(store.increment("n") for store in stores(job) for _ in range(10)))
        assert sorted(numbers) == list(range(1, 10 * N + 1))


@pytest.mark.parametrize("seed", range(3))
async def test_every_increment_counts_once_whenever_links_break(place: Place, seed: int) -> None:
    rng = random.Random(seed)
    async with job_of_peers(place, N) as job:
        job.start()
        await job.ups()
        total = 0
        for _ in range(30):
            calls = [asyncio.create_task(store.increment("n")) for store in stores(job) for _ in range(8)]
            for _ in range(rng.randint(0, 12)):
                await asyncio.sleep(0)
            break_link(place, job, rng.randint(1, N - 1))
            numbers = await asyncio.gather(*calls)
            assert sorted(numbers) == list(range(total + 1, total + len(calls) + 1))
            total += len(calls)


async def test_barriers_and_watches_outlive_links(place: Place) -> None:
    async with job_of_peers(place, N) as job:
        job.start()
        await job.ups()
        seen: list[tuple[str, bytes | None]] = []
        told = asyncio.Event()

        async def watch() -> None:
            async for change in stores(job)[2].watch("w"):
                seen.append((change.key, change.value))
                if len(seen) == 20:
                    told.set()

        watching = asyncio.create_task(watch())
        for number in range(20):
            meeting = asyncio.create_task(job.barrier(0, 1, 2))
            break_link(place, job, 2)
            await stores(job)[1].set(f"w/{number}", str(number))
            await job.barrier(3)
            await meeting
        await told.wait()
        watching.cancel()
        await asyncio.wait([watching])
        assert seen == [(f"w/{number}", str(number).encode()) for number in range(20)]


async def test_a_loop_that_ends_as_its_link_breaks_leaves_nothing_with_the_services(place: Place) -> None:
    if isinstance(place, MemoryPlace):
        pytest.skip("its network lives on one event loop")
    async with job_of_peers(place, N) as job:
        job.start()
        await job.ups()
        store = stores(job)[1]

        async def watch_and_wait() -> None:
            watching = asyncio.ensure_future(anext(store.watch("w")))
            waiting = asyncio.ensure_future(job.barrier(1, name="all"))
            await store.set("a", b"1")
            link = job.services[1].calls().route.link
            link.send = lambda parts: None  # what is said from now on is lost with the link
            assert [watching.done(), waiting.done()] == [False, False]

        before = job.peers[0].services.num_remote_sessions
        await asyncio.to_thread(asyncio.run, watch_and_wait())
        assert job.peers[0].services.num_remote_sessions == before + 1
        await store.set("w/1", b"2")
        assert job.peers[0].services.num_remote_sessions == before + 1  # its own, on this loop
        with pytest.raises(BarrierTimeoutError) as raised:
            await job.barrier(0, 2, 3, timeout=0.1)
        assert raised.value.missing.keys() == {1}


async def test_a_call_that_is_cancelled_has_no_part_in_its_barrier(place: Place) -> None:
    async with job_of_peers(place, N) as job:
        job.start()
        await job.ups()
        others = asyncio.create_task(job.barrier(0, 1, 2))
        cancelled = asyncio.create_task(job.barrier(3, name="other"))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        await job.barrier(3)
        await others
        await job.barrier(name="other")


async def test_calls_raise_what_ended_the_job(place: Place) -> None:
    async with job_of_peers(place, N) as job:
        job.start()
        await job.ups()
        waiting = [asyncio.create_task(store.get("never")) for store in stores(job)[:3]]
        await asyncio.sleep(0)
        job.peers[3].abort(ValueError("a bug"))
        for error in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(error, PeerFailedError)
            assert error.client_id == 3


@pytest.mark.parametrize("how", ["given up", "refused"])
async def test_a_session_that_cannot_go_on_ends_its_client_with_the_reason(
    place: Place, how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if how == "given up":
        monkeypatch.setattr(service_transport, "SERVICES_KEPT_MAX", 20)
    async with job_of_peers(place, N) as job:
        job.start()
        await job.ups()
        store = stores(job)[2]
        await store.set("a", b"1")
        if how == "refused":
            sessions = job.peers[0].services._remote
            monkeypatch.setattr(sessions, "_table", SessionTable(100))
            break_link(place, job, 2)
        calls = [asyncio.create_task(store.get("never")) for _ in range(30)]
        for error in await asyncio.gather(*calls, return_exceptions=True):
            assert type(error) is BringupError
            assert "client 2 (host-2" in str(error)
            assert "of client 0 (host-0" in str(error)
            assert "in phase ready" in str(error)
            assert ("messages were not acknowledged (" if how == "given up" else "does not know this session") in str(
                error
            )
        for error in await job.failures(but=(2,)):
            assert isinstance(error, PeerFailedError)
            assert error.client_id == 2
            assert "lost its session with the coordination services" in str(error)
    assert "internal error" not in caplog.text


class Stranger:
    """Takes what comes, and notes that the link has ended."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.ended = asyncio.Event()

    def received(self, frame: Frame) -> None:
        self.frames.append(bytes(frame))

    def lost(self, reason: str) -> None:
        self.ended.set()


@pytest.mark.parametrize(
    "frames",
    [
        [b"\x00\x00\x00\x01\xff"],
        encode_parts(GetKey(1, "a", wait=False)),
        [*encode_parts(OpenSession(1, 0)), *encode_parts(Value(1, b"")), *encode_parts(GetKey(1, "a", wait=False))],
        encode_parts(OpenSession(1, 7)),
        [*encode_parts(OpenSession(1, 0)), *encode_parts(Acknowledge(1))],
    ],
)
async def test_a_client_that_breaks_the_protocol_loses_its_link_alone(place: Place, frames: list[bytes]) -> None:
    async with job_of_peers(place, N) as job:
        job.start()
        ups = await job.ups()
        stranger = Stranger()
        own, host = (identity(i, job_id=ups[0].job_id, epoch=ups[0].epoch) for i in (1, 0))
        address = Address.parse(ups[0].members[0].link_address)
        link = await place.peer(1).connect_services(address, own, host, stranger)
        for frame in frames:
            link.send([frame])
        await stranger.ended.wait()
        await stores(job)[1].set("a", b"")


@pytest.mark.parametrize("wrong", ["job", "host", "client"])
async def test_who_is_not_of_the_job_gets_no_services(place: Place, wrong: str) -> None:
    async with job_of_peers(place, N) as job:
        job.start()
        ups = await job.ups()
        job_id = "f" * 32 if wrong == "job" else ups[0].job_id
        own = LinkIdentity(job_id, 1, 1, 99 if wrong == "client" else 1001)
        host = LinkIdentity(job_id, 1, 0, 99 if wrong == "host" else 1000)
        address = Address.parse(ups[0].members[0].link_address)
        stranger = Stranger()
        connecting = place.peer(1).connect_services(address, own, host, stranger)
        if wrong != "client":
            with pytest.raises(ConnectionClosedError, match="refused services to client 1"):
                await connecting
            return
        link = await connecting
        link.send(encode_parts(OpenSession(1, 0)))
        await stranger.ended.wait()
        assert stranger.frames == []


async def test_a_long_list_is_whole_whatever_links_break(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_lists, "_ITEMS_MAX", 4)
    async with job_of_peers(place, N) as job:
        job.start()
        await job.ups()
        first, *others = stores(job)
        for number in range(400):
            await first.set(f"d/{number:03}", b"x")
        listing = [asyncio.create_task(store.list("d")) for store in (*others, *others, first)]
        await asyncio.sleep(0)
        break_link(place, job, 1)
        expected = {f"d/{number:03}": b"x" for number in range(400)}
        for found in await asyncio.gather(*listing):
            assert found == expected
            assert list(found) == sorted(found)
