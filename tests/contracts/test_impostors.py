"""A client that claims to be another one is refused, over every network with certificates, and disturbs nobody."""

from __future__ import annotations

import asyncio

import pytest

from bringup.errors import AuthenticationError
from bringup.transport.ports import ConnectionClosedError, LinkIdentity, Network, ServiceLink, ServiceReceiver
from bringup.transport.wire.session_messages import OpenSession, SessionRefused

from .peers import JobOfPeers, job_of_peers
from .places import MemoryPlace, Place, identity, quietly
from .test_links import LEFT, OWN, listening, read

pytestmark = pytest.mark.places("memory", "tls", "tls-uvloop")

N = 3


class Disguise:
    """A place in which all peers have the certificate of one client."""

    def __init__(self, place: Place, certified_id: int) -> None:
        self._place = place
        self._certified_id = certified_id
        self.coordinator = place.coordinator

    def peer(self, client_id: int) -> Network:
        if isinstance(self._place, MemoryPlace):
            return self._place.hub.peer("host-9:9000", self._certified_id)
        return self._place.peer(self._certified_id)


def impostor(place: Place) -> JobOfPeers:
    """Return the only client of a job, which claims to be client 1 with the certificate of client 2."""
    return JobOfPeers(Disguise(place, 2), N)  # type: ignore[arg-type]


async def assert_is_refused(other: JobOfPeers) -> None:
    other.start(1)
    (error,) = await other.failures()
    assert isinstance(error, AuthenticationError)
    assert "refused client 1: the certificate here is that of client 2" in str(error)
    await other.runs[1]


async def test_an_impostor_does_not_take_the_place_of_a_client_that_is_still_to_come(place: Place) -> None:
    async with job_of_peers(place, N) as job:
        job.start(0)
        await job.all_have_registered_but(1, 2)
        await assert_is_refused(impostor(place))
        job.start(1, 2)
        await job.ups()
        await job.barrier()


async def test_an_impostor_does_not_disturb_the_incumbent(place: Place) -> None:
    async with job_of_peers(place, N) as job:
        job.start()
        await job.ups()
        await assert_is_refused(impostor(place))
        await job.barrier()


async def test_an_impostor_cannot_resume_the_session_of_another_client(place: Place) -> None:
    async with job_of_peers(place, N) as job:
        job.start()
        await job.ups()
        number = job.peers[1]._link._session.number
        connection, _ = await place.peer(2).connect_coordinator(place.coordinator, quietly)
        await connection.send(OpenSession(number, 1))
        assert isinstance(await connection.receive(), SessionRefused)
        await connection.close()
        await job.barrier()


async def test_an_impostor_gets_no_link(place: Place) -> None:
    async with listening(place) as (listener, address):
        accepting = asyncio.create_task(listener.accept(OWN, LEFT))
        with pytest.raises(ConnectionClosedError, match="OTHER_CERTIFICATE"):
            await place.peer(2).connect_link(address, LEFT, OWN, quietly)
        connected = await place.peer(0).connect_link(address, LEFT, OWN, quietly)
        await connected.send(b"here I am")
        assert await read(await accepting, 9) == b"here I am"
        connected.close()
        (await accepting).close()


async def test_an_impostor_gets_no_services(place: Place) -> None:
    def welcome(link: ServiceLink, sender: LinkIdentity) -> ServiceReceiver:
        raise AssertionError("it was let in")

    listener = await place.peer(1).serve_links(1001, welcome)
    try:
        address = place.link_address(1, listener)
        with pytest.raises(ConnectionClosedError, match="OTHER_CERTIFICATE"):
            await place.peer(2).connect_services(address, identity(0), OWN, None)  # type: ignore[arg-type]
    finally:
        await listener.close()


@pytest.mark.places("tls", "tls-uvloop")
async def test_an_impostor_that_listens_gets_no_link(place: Place) -> None:
    listener = await place.peer(2).serve_links(1001)
    accepting = asyncio.create_task(listener.accept(OWN, LEFT))
    try:
        with pytest.raises(ConnectionClosedError, match="that of client 2, and not of client 1"):
            await place.peer(0).connect_link(place.link_address(1, listener), LEFT, OWN, quietly)
    finally:
        accepting.cancel()
        await listener.close()
