"""The token of a job: the one secret, from which all its keys are derived."""

from __future__ import annotations

import os
import re
from typing import NoReturn

TOKEN_BYTES = 32
_HEXADECIMAL = re.compile(f"[0-9a-fA-F]{{{2 * TOKEN_BYTES}}}")
_FINGERPRINT_BYTES = 8


class Token:
    """A token: 32 random bytes, shared by all clients of a job and nobody else.

    Its texts never hold the secret, only the fingerprint, which may be logged; it cannot be pickled or copied.
    """

    __slots__ = ("__fingerprint", "__secret")

    def __init__(self, secret: bytes) -> None:
        assert len(secret) == TOKEN_BYTES
        self.__secret = secret
        self.__fingerprint = ""

    @classmethod
    def random(cls) -> Token:
        """Return a new token."""
        return cls(os.urandom(TOKEN_BYTES))

    @classmethod
    def parse(cls, text: str) -> Token:
        """Return the token that is written as 64 hexadecimal digits, white space around them apart.

        Raises:
            ValueError: it is no token; the message says what is wrong, without the text.
        """
        digits = text.strip()
        if not _HEXADECIMAL.fullmatch(digits):
            raise ValueError(
                f"is not {2 * TOKEN_BYTES} hexadecimal digits, but {len(digits)} characters"
                if len(digits) != 2 * TOKEN_BYTES
                else "has characters other than hexadecimal digits"
            )
        return cls(bytes.fromhex(digits))

    @property
    def fingerprint(self) -> str:
        """Its name, from which nothing follows for the secret: 16 hexadecimal digits."""
        if not self.__fingerprint:  # derived at the first use: a launcher hands a token on without it
            self.__fingerprint = self.derive("fingerprint", _FINGERPRINT_BYTES).hex()
        return self.__fingerprint

    def to_text(self) -> str:
        """Return the secret as 64 hexadecimal digits: for a file of mode 0600 or a descriptor, and nothing else."""
        return self.__secret.hex()

    def derive(self, purpose: str, length: int) -> bytes:
        """Return `length` bytes of key for a purpose; from those of one purpose nothing follows for another.

        By HKDF with SHA-256 (RFC 5869).
        """
        # Loaded where it is needed: the jobs of one client have no use for it.
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        return HKDF(SHA256(), length, salt=None, info=f"bringup v1 {purpose}".encode()).derive(self.__secret)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Token) and self.__secret == other.__secret

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"<Token {self.fingerprint}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a token is secret, and not to be pickled or copied")
