"""A process with the network of a job: a network namespace for each client, which it makes and cuts off.

Each client's namespace has one link, `eth0`, whose far end is a port of a bridge in a namespace of this process. The
namespaces have no names, so that nothing is left of them when this process and the clients have ended. A cut is a queue
that drops what is put into it: at the client's end for what it sends, at the bridge's for what it is sent.

`LocalJob` starts it: `python -m bringup.testing.namespace_host CLIENTS`, a `HelperProcess`. It says first either
`{"error": TEXT}` or `{"user": PATH, "networks": [PATH, ...]}`; then each question, `["cut", CLIENT, "out"]` or
`["heal", CLIENT, "in"]`, is answered with `{}` or an error. It ends when its input does.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from ..processes.helper import serve
from .enter_namespace import NEW_NETWORK, NEW_USER, call
from .netlink import Netlink

PREFIX = 16
"""Bits of the clients' network."""

_OWN_NETWORK = "/proc/self/ns/net"
_LOOPBACK = 1
# Above those that the kernel gives by itself.
_FIRST_INDEX = 100


def address_of(client_id: int) -> str:
    """Return a client's IPv4 address; there is room for 65,000."""
    high, low = divmod(client_id + 1, 256)
    return f"10.77.{high}.{low}"


class NamespaceHost:
    """The network of `num_clients` clients. Moves this process to a new namespace, or raises `OSError`.

    Attributes:
        user: the path of the user namespace that the others belong to, or `None` for the one that everybody is in.
        networks: the path of each client's network namespace.
    """

    def __init__(self, num_clients: int) -> None:
        self.user = f"/proc/{os.getpid()}/ns/user" if _leave() else None
        self._bridge = Netlink()
        self._clients: list[Netlink] = []
        self._bridge.add_bridge(_FIRST_INDEX, "bridge")
        self._bridge.enable(_FIRST_INDEX)
        home = os.open(_OWN_NETWORK, os.O_RDONLY)
        descriptors = [self._add(client_id, home) for client_id in range(num_clients)]
        self.networks = [f"/proc/{os.getpid()}/fd/{descriptor}" for descriptor in descriptors]

    def set(self, client_id: int, direction: str, *, cut: bool) -> None:
        """Drop the packets to a client (`in`) or from it (`out`), or let them through again."""
        netlink, index = self._clients[client_id], _FIRST_INDEX
        if direction == "in":
            netlink, index = self._bridge, _port(client_id)
        if cut:
            netlink.swallow(index)
        else:
            netlink.restore(index)

    def _add(self, client_id: int, home: int) -> int:
        """Make a client's namespace and its cable, and return to `home`; returns its descriptor."""
        call("unshare", NEW_NETWORK)
        descriptor = os.open(_OWN_NETWORK, os.O_RDONLY)
        client = Netlink()
        call("setns", home, NEW_NETWORK)
        port = _port(client_id)
        self._bridge.add_pair(port, f"port{client_id}", _FIRST_INDEX, "eth0", descriptor)
        self._bridge.enable(port, bridge=_FIRST_INDEX)
        client.enable(_LOOPBACK)
        client.add_address(_FIRST_INDEX, address_of(client_id), PREFIX)
        client.enable(_FIRST_INDEX)
        self._clients.append(client)
        return descriptor


def _port(client_id: int) -> int:
    return _FIRST_INDEX + 1 + client_id


def _leave() -> bool:
    """Leave this process's network namespace; returns whether that took a user namespace, as it does without root."""
    try:
        call("unshare", NEW_NETWORK)
    except OSError as error:
        if error.errno != errno.EPERM:
            raise
    else:
        return False
    user, group = os.geteuid(), os.getegid()
    call("unshare", NEW_USER | NEW_NETWORK)
    for name, text in (("uid_map", f"{user} {user} 1"), ("setgroups", "deny"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    return True


def main() -> None:
    """Make the network, and carry out commands until the input ends."""
    try:
        host = NamespaceHost(int(sys.argv[1]))
    except OSError as error:
        return serve(lambda _: {}, first=_failure(error))
    return serve(partial(_answer, host), first={"user": host.user, "networks": host.networks})


def _answer(host: NamespaceHost, command: Sequence[Any]) -> dict[str, str]:
    what, client_id, direction = command
    try:
        host.set(client_id, direction, cut=what == "cut")
    except OSError as error:
        return _failure(error)
    return {}


def _failure(error: OSError) -> dict[str, str]:
    return {"error": error.strerror or str(error)}


if __name__ == "__main__":
    main()
