"""Addresses of peers: `host:port`, `[::1]:port` for IPv6. Pure: no name is resolved."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from functools import lru_cache

# Characters. A DNS name has at most 253; the rest is room for a port padded with zeros.
_LONGEST = 300
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_ZONE = re.compile(r"[A-Za-z0-9_.-]+")
_OCTETS = frozenset(map(str, range(256)))


@dataclass(frozen=True, slots=True, order=False)
class Address:
    """The host and port of a peer.

    Attributes:
        host: a lower-case name, an IPv4 address, or an IPv6 address without brackets.
        port: 1..65535.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    @lru_cache(maxsize=65536)  # a client reads the addresses of all, some of them several times
    def parse(cls, text: str) -> Address:
        """Parse `host:port`.

        Args:
            text: a name, an IPv4 address, or an IPv6 address in brackets; then a colon and a port, which may be padded
                with zeros.

        Raises:
            ValueError: it is not one; the message quotes it and says why.
        """
        _check_characters(text)
        if "://" in text:
            scheme = text.partition("://")[0]
            raise ValueError(f"{_quoted(text)} has a scheme; leave out {_quoted(scheme + '://')}")
        host, port = _split(text)
        if not host:
            raise ValueError(f"{_quoted(text)} has no host; write host:port")
        if not port:
            raise ValueError(f"{_quoted(text)} has no port; write host:port")
        return cls(host=_normal_host(host), port=_parse_port(text, port))

    @property
    def is_literal(self) -> bool:
        """Whether the host is an IP address, which needs no resolver."""
        return ":" in self.host or _is_ipv4(self.host)

    @property
    def is_loopback(self) -> bool:
        """Whether it can only mean this machine, judged by the text alone."""
        name = self.host.removesuffix(".")
        if name == "localhost" or name.endswith(".localhost"):
            return True
        if ":" not in self.host:
            return name.startswith("127.") and _is_ipv4(name)
        ip = _unmapped(self.host)
        return ip is not None and ip.is_loopback

    @property
    def is_wildcard(self) -> bool:
        """Whether it means every interface (`0.0.0.0`, `::`), which can be bound but not dialled."""
        if ":" not in self.host:
            return self.host == "0.0.0.0"  # noqa: S104 - nothing is bound here
        ip = _unmapped(self.host)
        return ip is not None and ip.is_unspecified


def parse_host(text: str) -> str:
    """Parse a host without a port, and return its normal form.

    Args:
        text: a name, an IPv4 address, or an IPv6 address with or without brackets.

    Returns:
        A lower-case name, or an IP address in its shortest form, without brackets.

    Raises:
        ValueError: it is not one; the message quotes it and says why.
    """
    _check_characters(text)
    return _normal_host(text)


def _normal_host(text: str) -> str:
    if text.startswith("[") and text.endswith("]"):
        return _parse_ipv6(text[1:-1])
    if text.count(":") == 1:
        raise ValueError(f"{_quoted(text)} has a port; give the host alone")
    if ":" in text:
        return _parse_ipv6(text)
    if text.strip("0123456789."):
        return _parse_name(text)
    if not _is_ipv4(text):
        raise ValueError(f"{_quoted(text)} is not an IPv4 address: four numbers in 0..255, none padded")
    return text


def _is_ipv4(text: str) -> bool:
    octets = text.split(".")
    return len(octets) == 4 and _OCTETS.issuperset(octets)


def _check_characters(text: str) -> None:
    if not text:
        raise ValueError("it is empty")
    if len(text) > _LONGEST:
        raise ValueError(f"{_quoted(text)} is {len(text)} characters long; an address has at most {_LONGEST}")
    if text.split() != [text]:
        raise ValueError(f"{_quoted(text)} has white space in it")
    if not text.isascii():
        raise ValueError(f"{_quoted(text)} has characters beyond ASCII; write an international name in its xn-- form")


def _split(text: str) -> tuple[str, str]:
    if not text.startswith("["):
        if text.count(":") > 1:
            raise ValueError(
                f"{_quoted(text)} has more than one colon; an IPv6 address must stand in brackets, as in [::1]:9000"
            )
        host, _, port = text.partition(":")
        return host, port
    inside, closing, rest = text[1:].partition("]")
    if not closing:
        raise ValueError(f"{_quoted(text)} has an opening bracket and no closing one")
    if rest and not rest.startswith(":"):
        raise ValueError(f"{_quoted(text)} has {_quoted(rest)} after the bracket, where a colon and a port belong")
    return f"[{inside}]", rest[1:]


def _parse_port(text: str, digits: str) -> int:
    # int() alone also takes "+80", "8_0" and digits of other scripts.
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"{_quoted(text)} has port {_quoted(digits)}, which is not a number")
    port = int(digits)
    if not 1 <= port <= 65535:
        raise ValueError(f"{_quoted(text)} has port {_quoted(digits)}, which is not in 1..65535")
    return port


def _parse_ipv6(text: str) -> str:
    try:
        ip = ipaddress.IPv6Address(text)
    except ValueError:
        raise ValueError(f"{_quoted(text)} is not an IPv6 address") from None
    if ip.scope_id is not None and not _ZONE.fullmatch(ip.scope_id):
        raise ValueError(f"{_quoted(text)} has zone {_quoted(ip.scope_id)}, which is not the name of an interface")
    # The kernel binds and dials a mapped address as the IPv4 address that it is.
    return str(ip.ipv4_mapped) if ip.ipv4_mapped and ip.scope_id is None else str(ip)


def _parse_name(text: str) -> str:
    name = text.lower()
    if len(name) > 253:
        raise ValueError(f"{_quoted(text)} is {len(name)} characters long; a host name has at most 253")
    for label in name.removesuffix(".").split("."):
        if not _LABEL.fullmatch(label):
            raise ValueError(
                f"{_quoted(text)} is not a host name: its part {_quoted(label)} is not 1 to 63 letters, digits, "
                "hyphens or underscores, with no hyphen at either end"
            )
    return name


def _unmapped(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        ip = ipaddress.IPv6Address(host)
    except ValueError:
        return None
    return ip.ipv4_mapped or ip


def _quoted(text: str) -> str:
    return repr(text) if len(text) <= 80 else repr(text[:77] + "...")
