"""Certificates made from a token, judged by OpenSSL in handshakes in memory."""

from __future__ import annotations

import ssl
import time

import pytest

from bringup.transport.security.certificates import LIFE, Authority, KeyPair
from bringup.transport.security.contexts import load_key_pair, make_context
from bringup.transport.security.identity import name_of, subject_of
from bringup.transport.security.token import Token

TOKEN, OTHER = Token(bytes(range(32))), Token(bytes(32))
DAY = 24 * 3600.0


def issue(token: Token, client_id: int, *, now: float | None = None) -> KeyPair:
    return Authority(token).issue(name_of(client_id, token.fingerprint), now=now)


def shake_hands(client: tuple[Token, KeyPair], server: tuple[Token, KeyPair]) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Return both ends of a connection; each has its own authority."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = []
    for (token, pair), is_server in ((client, False), (server, True)):
        context = make_context(Authority(token).certificate, is_server=is_server)
        load_key_pair(context, pair)
        bios = (to_server, to_client) if is_server else (to_client, to_server)
        ends.append(context.wrap_bio(*bios, server_side=is_server))
    for end in ends * 2:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return ends[0], ends[1]


def test_clients_of_one_token_know_each_other() -> None:
    client, server = shake_hands((TOKEN, issue(TOKEN, 3)), (TOKEN, issue(TOKEN, 0)))
    assert client.version() == server.version() == "TLSv1.3"
    assert subject_of(client.getpeercert() or {}).client_id == 0
    assert subject_of(server.getpeercert() or {}).client_id == 3


@pytest.mark.parametrize("side", ["client", "server"])
def test_another_token_is_refused(side: str) -> None:
    ends = {"client": (TOKEN, issue(TOKEN, 1)), "server": (TOKEN, issue(TOKEN, 0))}
    ends[side] = (TOKEN, issue(OTHER, 0))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(**ends)


@pytest.mark.parametrize(
    ("skew", "complaint"),
    [(-LIFE - DAY, "expired"), (LIFE, "not yet valid"), (-LIFE / 2, None), (DAY / 2, None)],
)
def test_a_clock_may_be_wrong_by_hours_and_not_by_weeks(skew: float, complaint: str | None) -> None:
    ends = {"client": (TOKEN, issue(TOKEN, 1)), "server": (TOKEN, issue(TOKEN, 0, now=time.time() + skew))}
    if complaint is None:
        shake_hands(**ends)
    else:
        with pytest.raises(ssl.SSLCertVerificationError, match=complaint):
            shake_hands(**ends)


def test_a_certificate_is_to_be_renewed_after_half_its_life() -> None:
    now = time.time()
    assert issue(TOKEN, 1, now=now).renewal == pytest.approx(now + LIFE / 2)


def test_a_key_never_shows() -> None:
    pair = issue(TOKEN, 1)
    assert "PRIVATE" in pair.key.decode()
    assert repr(pair) == "<KeyPair>"


def test_a_client_can_certify_nobody() -> None:
    """The key of a client is not that of the authority, and its certificate is of no authority."""
    pair = issue(TOKEN, 1)
    context = make_context(Authority(TOKEN).certificate + pair.certificate, is_server=False)
    assert [entry["subject"] for entry in context.get_ca_certs()] == [
        ((("commonName", f"bringup job {TOKEN.fingerprint}"),),)
    ]
