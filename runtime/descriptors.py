"""Whether this process may open as many files as a client needs: gRPC crashes where it finds none left."""

from __future__ import annotations

import errno
import os
import resource

from ..errors import BringupError

__all__ = ["check_descriptors"]


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
