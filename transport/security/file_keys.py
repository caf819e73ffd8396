"""The files of a user's own public-key infrastructure, as a source of keys."""

from __future__ import annotations

import datetime
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from ...errors import ConfigurationError
from .certificates import KeyPair
from .identity import Subject
from .key_files import KeyFiles
from .keys import Keys

T = TypeVar("T")

_FILE_BYTES_MAX = 4 * 1024 * 1024
"""Of one file: the authorities of all browsers are a quarter of a megabyte."""

_Stamp = tuple[tuple[int, int, int], ...]


class FileKeys:
    """Keys of a user's own public-key infrastructure, read again when a file changes.

    Args:
        files: their names.

    Raises:
        ConfigurationError: the files cannot be used now; names the file, and says why.
    """

    serves_changes = True

    def __init__(self, files: KeyFiles) -> None:
        self.secret = f"the certificate in {files.cert} and the authorities in {files.ca}"
        self.checks_subjects = bool(files.uri_prefix)
        self._files = files
        self._stamp = self._stamp_now()
        self._keys = self._read()

    def current(self) -> Keys:
        """See `KeySource.current`. Files that cannot be used after a change leave the keys as they were."""
        try:
            if (stamp := self._stamp_now()) != self._stamp:
                self._keys = self._read()
                self._stamp = stamp
        except ConfigurationError:
            pass  # what is still valid goes on; what has expired the other side refuses, and says so
        return self._keys

    def for_server(self) -> Keys:
        """See `KeySource.for_server`."""
        return self.current()

    def server_name(self, host: str) -> str:
        """See `KeySource.server_name`."""
        return host

    def refusal_of(self, subject: Subject) -> str:
        """See `KeySource.refusal_of`."""
        prefix = self._files.uri_prefix
        if not prefix or any(uri.startswith(prefix) for uri in subject.uris):
            return ""
        found = ", ".join(subject.uris) or "none"
        return f"its certificate has no URI that begins with {prefix} (tls_uri_prefix), but {found}"

    def _stamp_now(self) -> _Stamp:
        return tuple(
            (status.st_ino, status.st_size, status.st_mtime_ns)
            for status in (_of(path, option, os.stat) for path, option in self._paths())
        )

    def _paths(self) -> tuple[tuple[Path, str], ...]:
        files = self._files
        return (files.ca, "tls_ca"), (files.cert, "tls_cert"), (files.key, "tls_key")

    def _read(self) -> Keys:
        authorities, chain, key = (_of(path, option, _content) for path, option in self._paths())
        files = self._files
        now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
        trusted = [each for each in _certificates(files.ca, "tls_ca", authorities) if _is_authority(each)]
        if not trusted:
            raise ConfigurationError(f"tls_ca={files.ca}: has no certificate of an authority (basicConstraints CA)")
        # Of several, some may have gone out of use.
        _check_dates("tls_ca", files.ca, max(trusted, key=lambda each: each.not_valid_after_utc), now)
        leaf = _certificates(files.cert, "tls_cert", chain)[0]
        _check_dates("tls_cert", files.cert, leaf, now)
        public = _public_of_key(files.key, key)
        if public != leaf.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo):
            raise ConfigurationError(f"tls_key={files.key}: is not the key of the certificate in {files.cert}")
        return Keys(KeyPair(chain, key, renewal=float("inf")), authorities)


def _of(path: Path, option: str, read: Callable[[Path], T]) -> T:
    try:
        return read(path)
    except OSError as error:
        raise ConfigurationError(f"{option}={path}: cannot be read: {error.strerror or error}") from None


def _content(path: Path) -> bytes:
    # Without O_NONBLOCK, a pipe without a writer would hold this process up for ever.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("it is no regular file, which could be read again when it changes")
        return file.read(_FILE_BYTES_MAX)


def _certificates(path: Path, option: str, data: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError:
        raise ConfigurationError(f"{option}={path}: has no certificates in PEM") from None


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def _check_dates(option: str, path: Path, certificate: x509.Certificate, now: datetime.datetime) -> None:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    begin, end = begin.replace(tzinfo=None), end.replace(tzinfo=None)
    if now > end:
        raise ConfigurationError(
            f"{option}={path}: has expired on {end} UTC, and it is {now:%Y-%m-%d %H:%M:%S} UTC here"
        )
    if now < begin:
        raise ConfigurationError(
            f"{option}={path}: is valid from {begin} UTC, and it is {now:%Y-%m-%d %H:%M:%S} UTC here"
        )


def _public_of_key(path: Path, data: bytes) -> bytes:
    try:
        key = load_pem_private_key(data, password=None)
    except TypeError:
        raise ConfigurationError(f"tls_key={path}: is encrypted; a job has nobody to ask for the password") from None
    except ValueError:
        raise ConfigurationError(f"tls_key={path}: has no private key in PEM") from None
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
