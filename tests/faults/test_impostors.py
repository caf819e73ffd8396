"""A process with the token of a running job that claims another client's place: refused, and nobody is disturbed."""

from __future__ import annotations

import asyncio

from bringup.testing.job import LocalJob
from bringup.transport.addresses import Address
from bringup.transport.attempts import Trouble
from bringup.transport.credentials import credentials_of
from bringup.transport.network import GrpcNetwork
from bringup.transport.ports import ConnectionClosedError, LinkIdentity
from bringup.transport.security.token import Token
from bringup.transport.wire.messages import PROTOCOL_VERSION, Refused, Register
from bringup.transport.wire.session_messages import Acknowledge, OpenSession

from ..fuzz.strangers import ports_of
from .assertions import check_works

TOKEN = "c0ffee" * 10 + "c0ff"
IMPOSTOR, VICTIM = 2, 1


def network() -> GrpcNetwork:
    return GrpcNetwork(own=None, loopback=True, credentials=credentials_of(Token.parse(TOKEN), IMPOSTOR))


async def register(coordinator: Address, incarnation: int) -> Refused:
    """Register as the victim; returns the refusal."""
    connection, _ = await network().connect_coordinator(coordinator, lambda _: None)
    await connection.send(OpenSession(incarnation, 0, is_new=True))
    claimed = str(coordinator)
    await connection.send(
        Register(VICTIM, 3, "worker", PROTOCOL_VERSION, "0", incarnation, claimed, "h", 1, claimed, "SIM", 1.0)
    )
    while isinstance(answer := await connection.receive(), Acknowledge):
        pass
    await connection.close()
    assert isinstance(answer, Refused)
    return answer


async def is_linked(port: int, sender: int, receiver: int) -> bool:
    """Try to link with a client as its left neighbour."""
    own, right = (LinkIdentity("ab" * 16, 1, client_id, 7) for client_id in (sender, receiver))
    troubles: asyncio.Queue[Trouble] = asyncio.Queue()
    dialling = asyncio.ensure_future(
        network().connect_link(Address("127.0.0.1", port), own, right, troubles.put_nowait)
    )
    hearing = asyncio.ensure_future(troubles.get())
    await asyncio.wait([dialling, hearing], return_when=asyncio.FIRST_COMPLETED)
    was_linked = dialling.done() and not isinstance(dialling.exception(), ConnectionClosedError)
    for task in (dialling, hearing):
        task.cancel()
    await asyncio.wait([dialling, hearing])
    return was_linked


def test_an_impostor_is_refused_and_the_incumbent_not_disturbed() -> None:
    with LocalJob(3, environment={"BRINGUP_TOKEN": TOKEN}) as job:
        job.start()
        job.initialize(device_type="SIM")
        coordinator = Address.parse(job.jobs[0])
        ports = {port for client in job.clients.values() for port in ports_of(client.process.pid)} - {coordinator.port}
        for incarnation in (0, 7, 2**62):
            refused = asyncio.run(register(coordinator, incarnation))
            assert "certificate" in refused.field
            assert f"client {IMPOSTOR}" in refused.yours
        for port in ports:
            assert not asyncio.run(is_linked(port, VICTIM, VICTIM + 1))
        check_works(job)
        for call in job.call("shutdown"):
            call.value()
