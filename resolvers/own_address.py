"""The address at which the other hosts reach this one, where this process is to tell it to them."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Sequence

# Seconds to resolve a name of this host. Some name servers answer after their first time-out, of 5.
_NAME_TIMEOUT = 8.0

# Ports tried one after the other: each is taken only where something else listens there.
_ATTEMPTS = 64
_PORT_LAST = 65535

# Of documentation: nothing is sent, and the kernel names the address from which it would be.
_AFAR = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


async def own_host(names: Sequence[str]) -> str:
    """Return a name of this host that leads other hosts to it, or else an address.

    Args:
        names: names by which its launcher reaches it; the host's own name comes after them.
    """
    candidates = [*names, socket.gethostname()]
    for name in candidates:
        if await _leads_here_from_afar(name):
            return name
    for family, afar in _AFAR:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((afar, 9))
            return str(probe.getsockname()[0])
    return candidates[0]


def free_port(wanted: int) -> int:
    """Return `wanted`, or the next port at which nothing listens on this host; `wanted` where all are taken."""
    for port in range(wanted, min(wanted + _ATTEMPTS, _PORT_LAST + 1)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    return wanted


async def _leads_here_from_afar(name: str) -> bool:
    """Whether a name has an address, and one that is not loopback, as a host's own name has in Debian's /etc/hosts."""
    try:
        async with asyncio.timeout(_NAME_TIMEOUT):
            found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # a time-out, too
        return False
    addresses = [ipaddress.ip_address(str(address[0]).partition("%")[0]) for *_, address in found]
    return any(not address.is_loopback for address in addresses)
