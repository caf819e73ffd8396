"""Names that do not resolve, resolve late, or lead to several addresses: over sockets, with another resolver."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from bringup.transport import dial
from bringup.transport.addresses import Address
from bringup.transport.attempts import Trouble, TroubleKind
from bringup.transport.names import Names, UnresolvedError
from bringup.transport.network import GrpcNetwork
from bringup.transport.ports import Connection, LinkListener, ProbeOutcome
from bringup.transport.tcp.interfaces import free_ports

from .peers import job_of_peers
from .places import Place, quietly
from .test_links import LEFT, OWN

pytestmark = pytest.mark.places("sockets", "sockets-uvloop")

AGAIN = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
NAME = "host-1.test"
"""The name that the tests' resolver knows."""


class Resolver:
    """Answers with what `answers` holds, one after the other, and with the last again and again."""

    def __init__(self, *answers: list[str] | OSError) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.may_answer = threading.Event()
        self.may_answer.set()

    def getaddrinfo(self, host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        assert host == NAME
        self.asked += 1
        assert self.may_answer.wait(20.0)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, OSError):
            raise answer
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 0)) for ip in answer]


@contextlib.contextmanager
def resolving(*answers: list[str] | OSError) -> Iterator[Resolver]:
    resolver = Resolver(*answers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", resolver.getaddrinfo)
        yield resolver
        resolver.may_answer.set()


def by_name(listener: LinkListener) -> Address:
    return Address(NAME, listener.port)


async def test_a_link_survives_a_look_up_that_fails_once(place: Place) -> None:
    """All clients look their neighbours up in the same moment, which is when name servers drop queries."""
    listener = await place.peer(1).serve_links(1001)
    accepting = asyncio.create_task(listener.accept(OWN, LEFT))
    troubles: list[Trouble] = []
    with resolving(AGAIN, AGAIN, ["127.0.0.1"]):
        link = await place.peer(0).connect_link(by_name(listener), LEFT, OWN, troubles.append)
    (await accepting).close()
    link.close()
    await listener.close()
    assert [trouble.kind for trouble in troubles] == [TroubleKind.UNRESOLVED]


async def test_every_kind_of_dial_survives_a_look_up_that_fails_once(place: Place) -> None:
    async def on_connection(connection: Connection) -> None:
        await connection.close()

    server = await place.peer(0).serve_coordinator(place.coordinator, on_connection)
    listener = await place.peer(1).serve_links(1001)
    for expected in (False, True):
        with resolving(AGAIN, ["127.0.0.1"]):
            address = Address(NAME, place.coordinator.port)
            connection, _ = await place.peer(0).connect_coordinator(address, quietly, expected=expected)
            await connection.close()
    with resolving(AGAIN, ["127.0.0.1"]):
        result = await place.peer(0).probe(by_name(listener), 1001, 5.0)
        assert result.outcome is ProbeOutcome.ALIVE
    await listener.close()
    await server.close()


async def test_a_client_on_the_coordinators_host_is_not_advertised_as_loopback(place: Place) -> None:
    """In Debian's /etc/hosts a host's own name is 127.0.1.1, which clients of other hosts would take for themselves."""

    async def on_connection(connection: Connection) -> None:
        await connection.close()

    server = await place.peer(0).serve_coordinator(place.coordinator, on_connection)
    with resolving(["127.0.0.1"]):
        named = Address(NAME, place.coordinator.port)
        for address, seen_from in ((named, NAME), (place.coordinator, "127.0.0.1")):
            connection, host = await place.peer(1).connect_coordinator(address, quietly)
            await connection.close()
            assert host == seen_from
    await server.close()


async def test_a_peer_is_found_again_while_no_name_resolves(place: Place) -> None:
    listener = await place.peer(1).serve_links(1001)
    network = place.peer(0)
    with resolving(["127.0.0.1"], AGAIN) as resolver:
        for _ in range(50):
            assert (await network.probe(by_name(listener), 1001, 5.0)).outcome is ProbeOutcome.ALIVE
        assert resolver.asked == 1
        # A resolver that hangs holds nobody up either.
        resolver.may_answer.clear()
        await listener.close()
        assert (await network.probe(by_name(listener), 1001, 5.0)).outcome is ProbeOutcome.REFUSED


async def test_a_name_that_moves_is_followed(place: Place) -> None:
    """As that of a pod that was started anew: the old address refuses, or nobody has it."""
    network = GrpcNetwork(own=None, loopback=False, bind_address="127.0.0.3", ring_port=free_ports(1, "127.0.0.3")[0])
    listener = await network.serve_links(1001)
    accepting = asyncio.create_task(listener.accept(OWN, LEFT))
    troubles: list[Trouble] = []
    with resolving(["127.0.0.2"], ["127.0.0.2"], ["127.0.0.3"]):
        link = await place.peer(0).connect_link(by_name(listener), LEFT, OWN, troubles.append)
    (await accepting).close()
    link.close()
    await listener.close()
    assert [trouble.kind for trouble in troubles] == [TroubleKind.REFUSED]


async def test_a_refusal_is_no_proof_where_another_address_of_the_name_does_not_answer(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_socket = dial.open_socket

    async def cut_off(endpoint: dial.Endpoint) -> socket.socket:
        if endpoint.host == "127.0.0.3":
            raise TimeoutError
        return await open_socket(endpoint)

    port = free_ports(1)[0]
    monkeypatch.setattr(dial, "open_socket", cut_off)
    with resolving(["127.0.0.2", "127.0.0.3"]):
        result = await place.peer(0).probe(Address(NAME, port), 1001, 0.2)
        assert result.outcome is ProbeOutcome.SILENT
    with resolving(["127.0.0.2", "127.0.0.4"]):
        result = await place.peer(0).probe(Address(NAME, port), 1001, 5.0)
        assert result.outcome is ProbeOutcome.REFUSED


async def test_many_who_wait_for_one_name_ask_once(place: Place) -> None:
    names = Names()
    with resolving(["127.0.0.1"]) as resolver:
        resolver.may_answer.clear()
        tasks = [asyncio.create_task(names.lookup(Address(NAME, 1 + port))) for port in range(100)]
        await asyncio.sleep(0)  # all of them have asked
        resolver.may_answer.set()
        found = await asyncio.gather(*tasks)
        assert resolver.asked == 1
    assert {endpoints[0].host for endpoints in found} == {"127.0.0.1"}
    with resolving(AGAIN), pytest.raises(UnresolvedError, match=f"{NAME}.*Temporary failure"):
        await Names().lookup(Address(NAME, 1))


async def test_a_job_comes_up_where_every_other_look_up_fails(place: Place) -> None:
    """The coordinator, ring links, services and a session that is taken up again: all by one name."""
    answers: list[list[str] | OSError] = [AGAIN, ["127.0.0.1"]] * 50
    async with place.entrance() as (entrance, break_all), job_of_peers(place, 3) as job:
        # A host binds its own name without asking; this one is nowhere but in the tests' resolver.
        job.detours = {client_id: Address(NAME, entrance.port) for client_id in (1, 2)}
        with resolving(*answers):
            job.start()
            ups = await job.ups()
            assert {Address.parse(up.members[1].link_address).host for up in ups} == {NAME}
            await job.barrier()
            break_all()
            await job.barrier(name="again")
            assert await job.leave() == [()] * 3
