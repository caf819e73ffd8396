"""A public-key infrastructure as a user has one: files in PEM."""

from __future__ import annotations

import datetime
import ipaddress
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from bringup.transport.security.key_files import KeyFiles

DAY = datetime.timedelta(days=1)


class Pki:
    """An authority, with its certificates in files below `folder`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.ca = folder / "ca.pem"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"authority {folder.name}")])
        self.renew()

    def renew(self, *, begin: datetime.timedelta = -DAY, end: datetime.timedelta = DAY) -> None:
        """Write another certificate of the same authority."""
        self.ca.write_bytes(self._own(self, begin, end))

    def sign(self, below: Pki) -> None:
        """Have another authority be one below this, in its file, too."""
        below.ca.write_bytes(self._own(below, -DAY, DAY))

    def _own(self, authority: Pki, begin: datetime.timedelta, end: datetime.timedelta) -> bytes:
        builder = self._builder(authority._name, authority._key, now() + begin, now() + end)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        return builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM)

    def issue(
        self,
        name: str,
        *,
        names: tuple[str, ...] = ("localhost",),
        uris: tuple[str, ...] = (),
        begin: datetime.timedelta = -DAY,
        end: datetime.timedelta = DAY,
        password: bytes | None = None,
        uri_prefix: str = "",
    ) -> KeyFiles:
        """Write a certificate for the loopback address and these names, and its key; either file is replaced whole."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        alternatives: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        alternatives += [x509.DNSName(each) for each in names]
        alternatives += [x509.UniformResourceIdentifier(each) for each in uris]
        builder = self._builder(subject, key, now() + begin, now() + end)
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        encryption = NoEncryption() if password is None else BestAvailableEncryption(password)
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
        files = KeyFiles(self.ca, self.folder / f"{name}.pem", self.folder / f"{name}.key", uri_prefix)
        for path, data in (
            (files.cert, builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM)),
            (files.key, text),
        ):
            path.with_suffix(".new").write_bytes(data)
            os.replace(path.with_suffix(".new"), path)
        return files

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, begin: datetime.datetime, end: datetime.datetime
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(end)
        )


def now() -> datetime.datetime:
    """Return the time, UTC."""
    return datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
