"""Certificates made from a token: every client of a job makes the same authority, and a short-lived one of its own.

Nothing is stored or sent: those who hold the token derive the key of the authority.
"""

from __future__ import annotations

import datetime
import time
from dataclasses import dataclass

import cryptography.hazmat.primitives.kdf.hkdf  # noqa: F401 - `Token.derive` imports it
from cryptography import x509
from cryptography.hazmat.backends import default_backend
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .token import Token

default_backend()  # the first signature would import it, for 5 ms, while the job waits

LIFE = 7 * 24 * 3600.0
"""Seconds for which a client's certificate is valid; a new one is made once half of them are over. Long enough for the
pause of a suspended machine, and short, as there is no way to revoke it but the end of the job."""

_SKEW = 24 * 3600.0
"""Seconds by which the clock of another host may be behind: setting a time zone wrong must not end a job."""

_CURVE = ec.SECP256R1()
_CURVE_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_SCALAR_BYTES = 48
"""Derived for a scalar of 32: the remainder is uniform but for 1 in 2^128 (FIPS 186-5, A.2.1)."""

# The authority ends with the token, whatever the clocks show: RFC 5280 has this date for "never".
_EARLIEST = datetime.datetime(1970, 1, 1)
_NEVER = datetime.datetime(9999, 12, 31, 23, 59, 59)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate with its key, both as PEM.

    Attributes:
        certificate: the certificate, and those between it and the authority.
        key: its private key, secret.
        renewal: when another one should take its place, in seconds since 1970.
    """

    certificate: bytes
    key: bytes
    renewal: float

    def __repr__(self) -> str:
        return "<KeyPair>"


class Authority:
    """The certificate authority of a job.

    Args:
        token: of the job.

    Attributes:
        certificate: its own certificate, as PEM.
    """

    def __init__(self, token: Token) -> None:
        scalar = int.from_bytes(token.derive("certificate authority", _SCALAR_BYTES))
        self._key = ec.derive_private_key(scalar % (_CURVE_ORDER - 1) + 1, _CURVE)
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"bringup job {token.fingerprint}")])
        self.certificate = self._own_certificate().public_bytes(Encoding.PEM)

    def issue(self, name: str, *, now: float | None = None, life: float = LIFE) -> KeyPair:
        """Return a new key with a certificate for the DNS name `name`, for both ends of connections.

        Args:
            name: see `identity.name_of`.
            now: the time in seconds since 1970; that of this host's clock, unless given.
            life: seconds for which it is valid.
        """
        now = time.time() if now is None else now
        key = ec.generate_private_key(_CURVE)
        usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        certificate = (
            self._builder(key.public_key(), x509.Name([]), _utc(now - _SKEW), _utc(now + life))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(usages, critical=False)
            # Critical, as RFC 5280 has it where the subject is empty.
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=True)
            .sign(self._key, SHA256())
        )
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return KeyPair(certificate.public_bytes(Encoding.PEM), text, now + life / 2)

    def _own_certificate(self) -> x509.Certificate:
        return (
            self._builder(self._key.public_key(), self._name, _EARLIEST, _NEVER)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .sign(self._key, SHA256())
        )

    def _builder(
        self,
        key: ec.EllipticCurvePublicKey,
        subject: x509.Name,
        begin: datetime.datetime,
        end: datetime.datetime,
    ) -> x509.CertificateBuilder:
        own_id = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(end)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own_id), critical=False)
        )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _utc(seconds: float) -> datetime.datetime:
    # The builder takes times without a zone for UTC.
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).replace(tzinfo=None)
