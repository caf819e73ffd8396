"""Both planes, under every kind of credentials on either side: which trust each other, and what the others are told."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import itertools
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from bringup.errors import AuthenticationError, ConfigurationError
from bringup.transport import attempts
from bringup.transport.addresses import Address
from bringup.transport.attempts import Trouble
from bringup.transport.credentials import Credentials, credentials_of
from bringup.transport.network import GrpcNetwork
from bringup.transport.ports import Connection, ConnectionClosedError
from bringup.transport.security import certificates, keys
from bringup.transport.security.token import Token

from ..lib.pki import Pki
from .places import TOKEN, Place, quietly
from .test_connections import ack, served
from .test_links import LEFT, OWN, read

pytestmark = pytest.mark.places("sockets", "sockets-uvloop")

OTHER_TOKEN = Token(bytes(reversed(range(32))))
KINDS = ("insecure", "token", "other token", "own PKI", "other PKI")
DAY = datetime.timedelta(days=1)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first refusal be final; `test_a_refusal_is_final_within_two_seconds` is about its time."""
    monkeypatch.setattr(attempts, "_UNTRUSTED_SECONDS", 0.0)


def credentials(kind: str, client_id: int, folder: Path) -> Credentials:
    match kind:
        case "insecure":
            return credentials_of(None, client_id)
        case "token":
            return credentials_of(TOKEN, client_id, "BRINGUP_TOKEN")
        case "other token":
            return credentials_of(OTHER_TOKEN, client_id)
    if not (folder / kind).exists():
        pki[kind] = Pki(folder / kind)
    return credentials_of(pki[kind].issue(f"client-{client_id}"), client_id)


pki: dict[str, Pki] = {}


def network(credentials: Credentials) -> GrpcNetwork:
    return GrpcNetwork(own=None, loopback=True, credentials=credentials)


async def greet(connection: Connection) -> None:
    await connection.send(ack(1))
    with contextlib.suppress(ConnectionClosedError):
        await connection.receive()


async def dial(place: Place, own: Credentials) -> str:
    """Connect to the coordinator; returns why not, or nothing."""
    try:
        async with asyncio.timeout(10):
            connection, _ = await network(own).connect_coordinator(place.coordinator, quietly)
            assert await connection.receive() == ack(1)
    except AuthenticationError as error:
        return str(error)
    await connection.close()
    return ""


SAID = {
    ("insecure", "TLS"): "it speaks TLS, and this client does not",
    ("TLS", "insecure"): "a coordinator without TLS",
    ("token", "other token"): f"it has a token of fingerprint {OTHER_TOKEN.fingerprint}, and here is the token of "
    f"fingerprint {TOKEN.fingerprint} (BRINGUP_TOKEN)",
    ("token", "PKI"): "it has a certificate of another authority",
    ("PKI", "token"): "it has a token of fingerprint ",
    ("PKI", "PKI"): "it has a certificate of another authority, and here is the certificate in",
}


def said(client: str, server: str) -> str:
    """Return what the client is told of why it is not trusted."""
    for key in ((client, server), (_family(client), _family(server)), (_layer(client), _layer(server))):
        if key in SAID:
            return SAID[key]
    return "it has a token of fingerprint"


def _family(kind: str) -> str:
    return kind.split()[-1]


def _layer(kind: str) -> str:
    return kind if kind == "insecure" else "TLS"


@pytest.mark.parametrize(("client", "server"), list(itertools.product(KINDS, KINDS)))
async def test_a_client_reaches_the_coordinator_of_its_own_kind_only(
    place: Place, client: str, server: str, tmp_path: Path
) -> None:
    async with served(network(credentials(server, 0, tmp_path)), place.coordinator, greet):
        reason = await dial(place, credentials(client, 1, tmp_path))
        assert (reason == "") == (client == server)
        assert (said(client, server) in reason) or client == server, reason
        # Nobody has disturbed it.
        assert await dial(place, credentials(server, 2, tmp_path)) == ""


@contextlib.asynccontextmanager
async def dialled(client: Credentials, server: Credentials) -> AsyncIterator[asyncio.Queue[Trouble | str]]:
    """Yield the troubles of a client that dials the link of a neighbour, and at last its refusal, or nothing."""
    listener = await network(server).serve_links(1001)
    accepting = asyncio.create_task(listener.accept(OWN, LEFT))
    told: asyncio.Queue[Trouble | str] = asyncio.Queue()

    async def connect() -> None:
        address = network(client).own or place_address(listener.port)
        try:
            link = await network(client).connect_link(address, LEFT, OWN, told.put_nowait)
        except (AuthenticationError, ConnectionClosedError) as error:
            return told.put_nowait(str(error))
        await link.send(b"here I am")
        assert await read(await accepting, 9) == b"here I am"
        link.close()
        return told.put_nowait("")

    connecting = asyncio.create_task(connect())
    try:
        yield told
    finally:
        connecting.cancel()
        accepting.cancel()
        await asyncio.wait([connecting, accepting])
        await listener.close()


def place_address(port: int) -> Address:
    return Address("127.0.0.1", port)


@pytest.mark.parametrize(("client", "server"), list(itertools.product(KINDS, KINDS)))
async def test_a_client_links_with_a_neighbour_of_its_own_kind_only(
    place: Place, client: str, server: str, tmp_path: Path
) -> None:
    async with dialled(credentials(client, 0, tmp_path), credentials(server, 1, tmp_path)) as told:
        async with asyncio.timeout(10):
            first = await told.get()
        assert (first == "") == (client == server)
        if "insecure" not in (client, server) and client != server:
            assert "its certificate is refused: " in str(first)


async def test_a_refusal_is_final_within_two_seconds(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    async with served(network(credentials_of(TOKEN, 0)), place.coordinator, greet), asyncio.timeout(10):
        began = asyncio.get_running_loop().time()
        assert "fingerprint" in await dial(place, credentials_of(OTHER_TOKEN, 1))
        assert asyncio.get_running_loop().time() - began > 1.0  # another job may just have left the port


async def test_another_job_that_ends_makes_way(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    reported = asyncio.Event()
    async with served(network(credentials_of(OTHER_TOKEN, 0)), place.coordinator, greet):
        dialling = asyncio.create_task(
            network(credentials_of(TOKEN, 1)).connect_coordinator(place.coordinator, lambda _: reported.set())
        )
        await reported.wait()
    async with served(network(credentials_of(TOKEN, 0)), place.coordinator, greet):
        connection, _ = await dialling
        assert await connection.receive() == ack(1)
        await connection.close()


def skew(monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    """Set the clock by which certificates are made."""
    clock = SimpleNamespace(time=lambda: time.time() + days * 86400)
    for module in (certificates, keys):
        monkeypatch.setattr(module, "time", clock)


@pytest.mark.parametrize("days", [-30, 30])
async def test_a_coordinator_with_a_wrong_clock_is_named(
    place: Place, days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = credentials_of(TOKEN, 1)
    skew(monkeypatch, days)
    monkeypatch.setattr(keys, "_SERVER_LIFE", certificates.LIFE)
    async with served(network(credentials_of(TOKEN, 0)), place.coordinator, greet):
        skew(monkeypatch, 0)
        assert "its certificate is valid from" in (reason := await dial(place, client))
        assert "UTC here. Set the clocks" in reason


@pytest.mark.parametrize("days", [-30, 30])
async def test_a_client_with_a_wrong_clock_is_told(place: Place, days: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(network(credentials_of(TOKEN, 0)), place.coordinator, greet):
        skew(monkeypatch, days)
        assert "it refuses the certificate of this client" in await dial(place, credentials_of(TOKEN, 1))


async def test_something_else_on_the_port_is_told(place: Place) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", place.coordinator.port)
    try:
        reason = await dial(place, credentials_of(TOKEN, 1))
        assert "something else listens there" in reason
    finally:
        server.close()


# Own public-key infrastructure.


async def test_files_that_change_are_read_again(place: Place, tmp_path: Path) -> None:
    authority = Pki(tmp_path)
    ours, theirs = authority.issue("ours"), authority.issue("theirs")
    server, client = credentials_of(theirs, 0), credentials_of(ours, 1)
    async with served(network(server), place.coordinator, greet):
        assert await dial(place, client) == ""
        successor = Pki(tmp_path)  # another authority takes its place, in the same files
        successor.issue("ours")
        successor.issue("theirs")
        assert await dial(place, client) == ""
        assert "another authority" in await dial(place, credentials_of(Pki(tmp_path / "other").issue("x"), 1))


async def test_files_that_become_unusable_leave_the_keys_as_they_were(place: Place, tmp_path: Path) -> None:
    files = Pki(tmp_path).issue("one")
    both = credentials_of(files, 0)
    async with served(network(both), place.coordinator, greet):
        files.cert.write_text("half-written")
        assert await dial(place, both) == ""


PREFIX = "spiffe://prod/ns/ml/"


@pytest.mark.parametrize(("client", "server"), [("", ""), ("x", ""), ("", "x"), (PREFIX + "c", ""), ("", PREFIX + "s")])
async def test_a_certificate_without_the_uri_is_refused_on_both_planes(
    place: Place, client: str, server: str, tmp_path: Path
) -> None:
    authority = Pki(tmp_path)
    ends = [
        credentials_of(authority.issue(f"c{i}", uris=(uri,) if uri else (), uri_prefix=PREFIX), i)
        for i, uri in enumerate((server, client))
    ]
    async with served(network(ends[0]), place.coordinator, greet):
        assert f"has no URI that begins with {PREFIX}" in await dial(place, ends[1])
    async with dialled(ends[1], ends[0]) as told:
        assert await told.get() != ""


async def test_refused_certificates_take_one_line_of_the_log(
    place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Pki(tmp_path)
    coordinator = credentials_of(authority.issue("c0", uris=(f"{PREFIX}0",), uri_prefix=PREFIX), 0)
    other = credentials_of(authority.issue("c1"), 1)
    async with served(network(coordinator), place.coordinator, greet):
        for _ in range(3):
            assert "refused this client: its certificate has no URI" in await dial(place, other)
    assert len([record for record in caplog.records if "has refused" in record.getMessage()]) == 1


async def test_certificates_with_the_uri_are_accepted_on_both_planes(place: Place, tmp_path: Path) -> None:
    authority = Pki(tmp_path)
    ends = [credentials_of(authority.issue(f"c{i}", uris=(f"{PREFIX}{i}",), uri_prefix=PREFIX), i) for i in range(2)]
    async with served(network(ends[1]), place.coordinator, greet):
        assert await dial(place, ends[0]) == ""
    async with dialled(*ends) as told:
        assert await told.get() == ""


async def test_a_coordinator_of_another_name_is_refused(place: Place, tmp_path: Path) -> None:
    authority = Pki(tmp_path)
    async with served(network(credentials_of(TOKEN, 3)), place.coordinator, greet):
        reason = await dial(place, credentials_of(TOKEN, 1))
        assert "whoever listens there is client 3" in reason
    assert authority.ca.exists()


async def test_an_authority_below_another_is_trusted_on_both_planes(place: Place, tmp_path: Path) -> None:
    authority = Pki(tmp_path / "below")
    Pki(tmp_path / "above").sign(authority)
    ends = [credentials_of(authority.issue(f"c{i}"), i) for i in range(2)]
    async with served(network(ends[0]), place.coordinator, greet):
        assert await dial(place, ends[1]) == ""
    async with dialled(*ends) as told:
        assert await told.get() == ""


async def test_a_link_between_those_who_do_not_trust_each_other_is_given_up(place: Place, tmp_path: Path) -> None:
    ends = [credentials_of(Pki(tmp_path / str(i)).issue("client"), i) for i in range(2)]
    listener = await network(ends[0]).serve_links(1001)
    try:
        with pytest.raises(AuthenticationError, match="its certificate is refused"):
            await network(ends[1]).connect_link(place_address(listener.port), LEFT, OWN, quietly)
    finally:
        await listener.close()


async def test_a_coordinator_of_an_expired_authority_is_told_from_one_whose_certificate_has_expired(
    place: Place, tmp_path: Path
) -> None:
    authority = Pki(tmp_path / "authority")
    ends = [credentials_of(authority.issue(f"c{i}"), i) for i in range(2)]
    async with served(network(ends[0]), place.coordinator, greet):
        expired = Pki(tmp_path / "other")
        authority.renew(begin=-2 * DAY, end=-DAY)
        bundle = tmp_path / "bundle.pem"
        bundle.write_bytes(authority.ca.read_bytes() + expired.ca.read_bytes())
        mine = dataclasses.replace(authority.issue("mine"), ca=bundle)
        assert "the authority of its certificate, and not that, is refused" in await dial(
            place, credentials_of(mine, 1)
        )


def broken(tmp_path: Path, what: str) -> tuple[object, str]:
    authority = Pki(tmp_path)
    files = authority.issue("one")
    match what:
        case "absent":
            files.key.unlink()
            return files, f"tls_key={files.key}: cannot be read: No such file"
        case "no certificate":
            files.cert.write_text("nothing")
            return files, f"tls_cert={files.cert}: has no certificates in PEM"
        case "no authority":
            files.ca.write_bytes(files.cert.read_bytes())
            return files, f"tls_ca={files.ca}: has no certificate of an authority"
        case "expired authority":
            authority.renew(begin=-2 * DAY, end=-DAY)
            return files, f"tls_ca={files.ca}: has expired on"
        case "pipe":
            files.ca.unlink()
            os.mkfifo(files.ca)
            return files, f"tls_ca={files.ca}: cannot be read: it is no regular file"
        case "another key":
            files.key.write_bytes(authority.issue("other").key.read_bytes())
            return files, f"tls_key={files.key}: is not the key of the certificate in {files.cert}"
        case "expired":
            return authority.issue("late", begin=-2 * DAY, end=-DAY), "has expired on"
        case "not yet valid":
            return authority.issue("early", begin=DAY, end=2 * DAY), "is valid from"
        case "encrypted":
            return authority.issue("secret", password=b"x"), "is encrypted"
    files.key.write_text("nothing")
    return files, f"tls_key={files.key}: has no private key in PEM"


@pytest.mark.parametrize(
    "what",
    [
        "absent",
        "no certificate",
        "no authority",
        "expired authority",
        "pipe",
        "another key",
        "expired",
        "not yet valid",
        "encrypted",
        "no key",
    ],
)
def test_files_that_cannot_be_used_are_refused_at_the_start(tmp_path: Path, what: str) -> None:
    files, complaint = broken(tmp_path, what)
    with pytest.raises(ConfigurationError) as refused:
        credentials_of(files, 1)  # type: ignore[arg-type]
    assert complaint in str(refused.value)
