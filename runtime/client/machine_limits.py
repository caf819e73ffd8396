"""The limits of this machine and process that a large job meets: open files, and the kernel's queue of connections."""

from __future__ import annotations

import errno
import os
import resource
from itertools import repeat
from pathlib import Path

from ...errors import BringupError

_OPEN_FILES = 28
"""Measured: an event loop, gRPC, a listener, a connection, and the links to neighbours."""

_OPEN_FILES_PER_CLIENT = 2
"""On client 0: a connection and a link for the services."""

_QUEUE_MAX = 1024
"""Connections that wait to be accepted, at most: a host accepts some thousands a second, so that a crowd of any size
drains in a moment, but a queue that is much shorter than the crowd makes most of it ask again."""

_SOMAXCONN = Path("/proc/sys/net/core/somaxconn")


def check_open_files(client_id: int, num_clients: int) -> None:
    """Check that this process may open the files that a client needs: gRPC hangs where it finds none left.

    Raises:
        BringupError: it may not; says how many are needed, and the limit.
    """
    clients_served = num_clients if client_id == 0 else 0
    count = _OPEN_FILES + _OPEN_FILES_PER_CLIENT * clients_served
    opened: list[int] = []
    try:
        # Without a step of Python in between, where Ctrl-C could leave one open.
        opened.extend(map(os.open, repeat(os.devnull, count), repeat(os.O_RDONLY | os.O_CLOEXEC)))
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        raise BringupError(
            f"client {client_id} needs {count} open files, and can have {len(opened)}: "
            f"{os.strerror(error.errno)} (limit {limit}). Raise the limit (ulimit -n), or close what this process does "
            "not need."
        ) from None
    finally:
        list(map(os.close, opened))


def short_queue(num_clients: int) -> str:
    """Return that the kernel's queue is short for the clients that come to client 0 at once; nothing where it is not.

    Such a job comes up, too: a client that finds the queue full asks again after 1, 3 and 7 seconds.
    """
    try:
        limit = int(_SOMAXCONN.read_text())
    except (OSError, ValueError):  # no such file outside Linux, nor in some sandboxes
        return ""
    wanted = min(num_clients, _QUEUE_MAX)
    if limit >= wanted:
        return ""
    return (
        f"net.core.somaxconn is {limit} on this host, and all {num_clients} clients connect to it in the same moment: "
        f"some will have to ask again, for seconds. Raise it on client 0's host (sysctl -w net.core.somaxconn={wanted})"
    )
