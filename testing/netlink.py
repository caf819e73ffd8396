"""Requests to the kernel that make a network: links, addresses, and queues that drop packets.

Requests of rtnetlink(7), written here so that no `ip` or `tc` need be installed. Links are named by their index, which
whoever makes them chooses.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from types import TracebackType
from typing import Self

_NETLINK_ROUTE = 0
_ERROR = 2
_HEADER = struct.Struct("=IHHII")
_ANSWER_BYTES_MAX = 64 * 1024

# Kinds of request.
_NEW_LINK, _NEW_ADDRESS, _NEW_QUEUE, _DELETE_QUEUE = 16, 20, 36, 37

_REQUEST, _ACKNOWLEDGE, _REPLACE, _EXCLUSIVE, _CREATE = 0x1, 0x4, 0x100, 0x200, 0x400

# Attributes.
_LINK_NAME, _LINK_MASTER, _LINK_INFO, _LINK_NAMESPACE = 3, 10, 18, 28
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_ADDRESS, _LOCAL_ADDRESS = 1, 2
_QUEUE_KIND = 1

_UP = 1
_ROOT_QUEUE = 0xFFFFFFFF


class Netlink:
    """Changes one network namespace: the one of this thread at the time of construction.

    All requests raise `OSError`, with what was asked for, where the kernel refuses.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_ROUTE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.close()

    def add_bridge(self, index: int, name: str) -> None:
        """Make a bridge, which carries frames between the links that are given to it."""
        body = _link(index) + _text(_LINK_NAME, name) + _attribute(_LINK_INFO, _text(_INFO_KIND, "bridge"))
        self._request(_NEW_LINK, _CREATE | _EXCLUSIVE, body, f"making bridge {name}")

    def add_pair(self, index: int, name: str, far_index: int, far_name: str, far_namespace: int) -> None:
        """Make a cable (a pair of veth links): one end here, the other in the namespace of a descriptor."""
        far_end = _link(far_index) + _text(_LINK_NAME, far_name) + _number(_LINK_NAMESPACE, far_namespace)
        info = _text(_INFO_KIND, "veth") + _attribute(_INFO_DATA, _attribute(_VETH_PEER, far_end))
        body = _link(index) + _text(_LINK_NAME, name) + _attribute(_LINK_INFO, info)
        self._request(_NEW_LINK, _CREATE | _EXCLUSIVE, body, f"making the veth pair {name} and {far_name}")

    def enable(self, index: int, bridge: int | None = None) -> None:
        """Bring a link up, as a port of a bridge where one is given."""
        body = _link(index, flags=_UP) + (b"" if bridge is None else _number(_LINK_MASTER, bridge))
        self._request(_NEW_LINK, 0, body, f"bringing link {index} up")

    def add_address(self, index: int, address: str, prefix: int) -> None:
        """Give a link an IPv4 address, in a network of `prefix` bits."""
        packed = ipaddress.IPv4Address(address).packed
        body = struct.pack("=BBBBi", socket.AF_INET, prefix, 0, 0, index)
        body += _attribute(_LOCAL_ADDRESS, packed) + _attribute(_ADDRESS, packed)
        self._request(_NEW_ADDRESS, _CREATE | _EXCLUSIVE, body, f"giving link {index} the address {address}")

    def swallow(self, index: int) -> None:
        """Drop all packets that leave over a link; their senders see no error."""
        body = _queue(index) + _text(_QUEUE_KIND, "blackhole")
        self._request(_NEW_QUEUE, _CREATE | _REPLACE, body, f"giving link {index} a blackhole for a queue")

    def restore(self, index: int) -> None:
        """Undo `swallow`."""
        self._request(_DELETE_QUEUE, 0, _queue(index), f"giving link {index} its own queue back")

    def _request(self, kind: int, flags: int, body: bytes, what: str) -> None:
        header = _HEADER.pack(_HEADER.size + len(body), kind, _REQUEST | _ACKNOWLEDGE | flags, 0, 0)
        self._socket.send(header + body)
        answer = self._socket.recv(_ANSWER_BYTES_MAX)
        _, answered, _, _, _ = _HEADER.unpack_from(answer)
        assert answered == _ERROR, f"the kernel answered {what} with a message of kind {answered}"
        (number,) = struct.unpack_from("=i", answer, _HEADER.size)
        if number:
            raise OSError(-number, f"{what}: {os.strerror(-number)}")


def _link(index: int, flags: int = 0) -> bytes:
    return struct.pack("=BBHiII", socket.AF_UNSPEC, 0, 0, index, flags, flags)


def _queue(index: int) -> bytes:
    return struct.pack("=BBHiIII", socket.AF_UNSPEC, 0, 0, index, 0, _ROOT_QUEUE, 0)


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _number(kind: int, value: int) -> bytes:
    return _attribute(kind, struct.pack("=I", value))


def _text(kind: int, value: str) -> bytes:
    return _attribute(kind, value.encode() + b"\0")
