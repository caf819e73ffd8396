"""The reason of a handshake that failed: gRPC says "Socket closed", whatever it was.

The dialling side shakes hands once more, by itself, and looks at what the other side is.
"""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import Mapping
from typing import Any

from cryptography import x509

from ..dial import open_socket
from ..names import Endpoint
from .identity import Subject, subject_of
from .keys import KeySource
from .terms import RefusedError, Terms

_TIMEOUT = 1.0
"""Seconds for one look: the other side has just answered the handshake that failed."""

_READ_BYTES = 16 * 1024
_HTTP2_FRAME_TYPES = (4, 7)
"""SETTINGS and GOAWAY, with which a server without TLS answers."""

_X509_EXPIRED, _X509_NOT_YET_VALID = 10, 9
_REFUSED_HERE = "expired", "unknown ca", "bad certificate", "certificate unknown", "certificate required"

_ADVICE_CLOCK = "Set the clocks of both hosts, or renew the certificate."
_ADVICE_JOB = "All clients of a job need the same one; or another job has this address."


class _NoTlsError(Exception):
    """The other side does not speak TLS; has its first bytes."""


class _DroppedError(Exception):
    """The other side has ended the connection, once it had the certificate of this one: gRPC does not say why."""


async def diagnose(endpoint: Endpoint, terms: Terms, source: KeySource, name: str) -> str:
    """Return why this side and the one at `endpoint` do not trust each other; nothing where nothing is wrong.

    Args:
        endpoint: of the coordinator.
        terms: of this side.
        source: of the keys of this side.
        name: that the certificate there must have.
    """
    try:
        async with asyncio.timeout(_TIMEOUT):
            return await _compare(endpoint, terms, source, name)
    except (OSError, TimeoutError):
        return ""  # it is gone, or silent: other errors tell that


async def wants_tls(endpoint: Endpoint) -> bool:
    """Return whether the coordinator at `endpoint` speaks TLS, which this side does not."""
    try:
        async with asyncio.timeout(_TIMEOUT):
            await _shake_hands(endpoint, _trusting(), is_heard=False)
    except (_NoTlsError, OSError, TimeoutError):
        return False
    return True


async def _compare(endpoint: Endpoint, terms: Terms, source: KeySource, name: str) -> str:
    try:
        certificate: Mapping[str, Any] = (await _shake_hands(endpoint, terms.context)).getpeercert() or {}
        terms.identify(subject_of(certificate))
    except _NoTlsError as error:
        what = "a coordinator without TLS, perhaps one with insecure=True," if _is_http2(error) else "something else"
        return (
            f"{what} listens there, which cannot show that it belongs to this job; here is {source.secret}. Give all "
            "clients of the job the same secret, or insecure=True to all; or another program has this address."
        )
    except RefusedError as error:
        return str(error)
    except ssl.SSLCertVerificationError as error:
        return _text_about(await _certificate_at(endpoint), error, source)
    except _DroppedError:
        return (
            f"it refuses the certificate of this client, which is of {source.secret}: its clock differs from "
            f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC by days, or it trusts other authorities"
        )
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).lower().replace("_", " ")
        said = next((said for said in _REFUSED_HERE if said in reason), reason)
        advice = _ADVICE_CLOCK if said == "expired" else _ADVICE_JOB
        return f"it refuses the certificate of this client: {said}. {advice}"
    subject = subject_of(certificate)
    hosts = {value for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "IP Address")}
    if name.lower() not in {host.lower() for host in hosts} and not any(host.startswith("*.") for host in hosts):
        known = ", ".join(sorted(hosts)) or "no name"
        client = "" if subject.client_id is None else f" is client {subject.client_id}, and"
        return f"whoever listens there{client} has a certificate of {known}, and not of {name}"
    return ""


def _text_about(certificate: x509.Certificate | None, error: ssl.SSLCertVerificationError, source: KeySource) -> str:
    if certificate is None:
        return f"its certificate is refused: {error.verify_message}"
    if error.verify_code in (_X509_EXPIRED, _X509_NOT_YET_VALID):
        begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        now = datetime.datetime.now(datetime.UTC)
        if begin <= now <= end:
            return (
                f"the authority of its certificate, and not that, is refused: {error.verify_message}. {_ADVICE_CLOCK}"
            )
        return (
            f"its certificate is valid from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC, and it is "
            f"{now:%Y-%m-%d %H:%M} UTC here. {_ADVICE_CLOCK}"
        )
    fingerprint = _subject(certificate).fingerprint
    theirs = "a certificate of another authority" if fingerprint is None else f"a token of fingerprint {fingerprint}"
    return f"it has {theirs}, and here is {source.secret}. {_ADVICE_JOB}"


def _subject(certificate: x509.Certificate) -> Subject:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return Subject()
    return Subject(tuple(names.get_values_for_type(x509.DNSName)))


async def _certificate_at(endpoint: Endpoint) -> x509.Certificate | None:
    """Return the certificate at `endpoint`, whoever has signed it."""
    try:
        tls = await _shake_hands(endpoint, _trusting(), is_heard=False)
    except (_NoTlsError, ssl.SSLError):
        return None
    return x509.load_der_x509_certificate(tls.getpeercert(binary_form=True) or b"")


def _trusting() -> ssl.SSLContext:
    """Return a context that looks at a certificate, and says nothing to whoever shows it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


async def _shake_hands(endpoint: Endpoint, context: ssl.SSLContext, *, is_heard: bool = True) -> ssl.SSLObject:
    """Shake hands, and wait until the other side says something where `is_heard`: it may refuse this one even then.

    Raises:
        ssl.SSLError: one side refuses the other.
        _NoTlsError: it does not speak TLS.
        _DroppedError: it ends the connection after the handshake.
        OSError: it ends the connection.
    """
    loop = asyncio.get_running_loop()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing)
    is_first, is_open = True, False
    with await open_socket(endpoint) as sock:
        while True:
            try:
                if not is_open:
                    tls.do_handshake()
                    is_open = True
                if is_heard:
                    tls.read(1)
                return tls
            except ssl.SSLWantReadError:
                pass
            await loop.sock_sendall(sock, outgoing.read())
            data = await loop.sock_recv(sock, _READ_BYTES)
            if not data:
                raise _DroppedError if is_open else ConnectionResetError("it ended the connection")
            if is_first and data[0] not in (0x15, 0x16):  # an alert, or a handshake
                raise _NoTlsError(data)
            is_first = False
            incoming.write(data)


def _is_http2(error: _NoTlsError) -> bool:
    data: bytes = error.args[0]
    return len(data) >= 9 and data[0] == 0 and data[3] in _HTTP2_FRAME_TYPES
