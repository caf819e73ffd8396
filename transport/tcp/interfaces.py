"""Interfaces and ports to listen on; a taken port is reported with its holder."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import re
import socket
from pathlib import Path

from ...errors import ConfigurationError
from ..addresses import Address
from ..forks import SOCKETS
from ..names import Endpoint, literal_hosts

_LISTEN = "0A"
_DRAWS = 16
"""Of a port that must be free on several addresses: one draw fails rarely, all of them only if no port is free."""

_PORTS_TO_CHOOSE = range(10_000, 32_768)
"""Below the range from which Linux draws ports for outgoing connections, which could take one before it is bound."""


def bind_hosts(bind_address: str | None, loopback: bool, own: Address | None) -> list[str]:
    """Return the literal addresses to listen on.

    Args:
        bind_address: what the user asked for, or `None`.
        loopback: whether the whole job is on this machine.
        own: this client's address in the job, where it has one; its family decides.
    """
    if bind_address is not None:
        return literal_hosts(Address(bind_address.strip("[]"), 1)) or [bind_address]
    if not loopback:
        is_ipv4 = own is not None and own.host.replace(".", "").isdigit()
        return ["0.0.0.0"] if is_ipv4 or not _has_ipv6() else ["::"]  # noqa: S104 - a job of several hosts
    return ["127.0.0.1", "::1"] if own is None else literal_hosts(own)


def _has_ipv6() -> bool:
    """Return whether this machine can listen on `::`, which takes IPv4 connections as well."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as sock:
            sock.bind(("::", 0))
    except OSError:
        return False
    return True


def check_free(hosts: list[str], port: int, purpose: str) -> list[Endpoint]:
    """Return the endpoints of `hosts` that can be bound; at least one, and none of them taken.

    gRPC does not say why it could not bind, so the question is put to the kernel first.

    Raises:
        ConfigurationError: one is taken, or none belongs to this machine; names address, purpose and holder.
    """
    sockets = bind_all(hosts, port, purpose)
    try:
        return [Endpoint(sock.getsockname()[0], port) for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return `count` ports of a host that are free at this moment.

    None of them is one that the kernel gives to those who ask for any: a connection could get it before it is used.
    """
    host = next(iter(literal_hosts(Address(host, 1))), host)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    ports: list[int] = []
    for port in random.sample(_PORTS_TO_CHOOSE, len(_PORTS_TO_CHOOSE)):
        if len(ports) == count:
            break
        with socket.socket(family, socket.SOCK_STREAM) as sock, contextlib.suppress(OSError):
            sock.bind((host, port))
            ports.append(port)
    return ports


def bind_all(hosts: list[str], port: int, purpose: str) -> list[socket.socket]:
    """Return sockets bound to `port` of those of `hosts` that this machine has; port 0 is one that is free on all.

    Raises:
        ConfigurationError: as `check_free`.
    """
    for _ in range(_DRAWS):
        try:
            return _bind_all(hosts, port, purpose)
        except _OtherDrawError:
            continue
    raise ConfigurationError(f"{purpose} found no port that is free on all of {', '.join(hosts)}: choose one")


class _OtherDrawError(Exception):
    """The port that was drawn on one host is taken on another."""


def _bind_all(hosts: list[str], port: int, purpose: str) -> list[socket.socket]:
    bound: list[socket.socket] = []
    reason = ""
    for host in hosts:
        endpoint = Endpoint(host, bound[0].getsockname()[1] if bound else port)
        sock = socket.socket(endpoint.family, socket.SOCK_STREAM)
        try:
            _bind(sock, endpoint)
            SOCKETS.bound(sock.getsockname()[1])
            bound.append(sock)
        except OSError as error:
            sock.close()
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                for other in bound:
                    other.close()
                if bound and port == 0:
                    raise _OtherDrawError from None
                if port == 0:
                    raise ConfigurationError(_used_up(endpoint, purpose)) from None
                raise ConfigurationError(_taken(endpoint, purpose, error)) from None
            reason = os.strerror(error.errno) if error.errno else str(error)
    if not bound:
        raise ConfigurationError(
            f"{purpose} cannot listen on {', '.join(str(Endpoint(host, port)) for host in hosts)}: {reason}. "
            "Is it an address of this host? Check jobs, client_id and bind_address."
        )
    return bound


def _bind(sock: socket.socket, endpoint: Endpoint) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if endpoint.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if endpoint.host == "::" else 1)
    sock.bind((endpoint.host, endpoint.port))


def _taken(endpoint: Endpoint, purpose: str, error: OSError) -> str:
    if error.errno == errno.EACCES:
        return f"{purpose} may not listen on {endpoint}: permission denied. Choose a port above 1023."
    return (
        f"{purpose} cannot listen on {endpoint}: the port is taken{_holder(endpoint.port)}. "
        "Another job or an earlier run may still be using it: end that process, or choose another port."
    )


def _used_up(endpoint: Endpoint, purpose: str) -> str:
    return (
        f"{purpose} found no free port on {endpoint.host}: all that Linux chooses from (net.ipv4.ip_local_port_range) "
        "are in use, by connections and listeners of this host. End some of them, or choose a port."
    )


def _holder(port: int) -> str:
    """Return " by process 12 (python)" where this user may see it, else nothing."""
    inodes = _listening_inodes(port)
    if not inodes:
        return ""
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            links = {os.readlink(entry) for entry in (process / "fd").iterdir()}
            if links & inodes:
                return f" by process {process.name} ({(process / 'comm').read_text().strip()})"
        except OSError:  # it has ended, or is another user's
            continue
    return ""


def _listening_inodes(port: int) -> set[str]:
    inodes: set[str] = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        try:
            rows = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            columns = row.split()
            local = re.fullmatch(r"[0-9A-F]+:([0-9A-F]{4})", columns[1])
            if local and int(local[1], 16) == port and columns[3] == _LISTEN:
                inodes.add(f"socket:[{columns[9]}]")
    return inodes
