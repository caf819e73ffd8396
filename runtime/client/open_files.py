"""Whether this process may open as many files as a client needs: gRPC crashes where it finds none left."""

from __future__ import annotations

import errno
import os
import resource

from ...errors import BringupError

# Measured: an event loop, gRPC, a listener, a connection and two links; on client 0 a connection and services for each.
_DESCRIPTORS = 28
_DESCRIPTORS_PER_CLIENT = 2


def check_descriptors_of_client(client_id: int, num_clients: int) -> None:
    """Check that a client can open the files that it needs; client 0 serves all.

    Raises:
        BringupError: it cannot.
    """
    clients_served = num_clients if client_id == 0 else 0
    check_descriptors(_DESCRIPTORS + _DESCRIPTORS_PER_CLIENT * clients_served, f"client {client_id}")


def check_descriptors(count: int, who: str) -> None:
    """Check that `count` files more can be opened.

    Args:
        count: how many.
        who: needs them, for the error.

    Raises:
        BringupError: they cannot.
    """
    opened: list[int] = []
    try:
        while len(opened) < count:
            opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        raise BringupError(
            f"{who} needs {count} open files, and can have {len(opened)}: {os.strerror(error.errno)} (limit {limit}). "
            "Raise the limit (ulimit -n), or close what this process does not need."
        ) from None
    finally:
        for descriptor in opened:
            os.close(descriptor)
