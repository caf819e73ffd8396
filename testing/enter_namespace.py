"""Becomes a command in a network namespace. Run as a script, without the rest of bringup, to be quick.

`USER NETWORK COMMAND...`: the paths of the namespaces to enter, `-` for none, and what to become. A process enters a
user namespace only while it has one thread, so that the process which starts clients cannot do it for them.
"""

from __future__ import annotations

import ctypes
import os
import sys

NEW_USER = 0x10000000
NEW_NETWORK = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)


def enter(path: str, kind: int) -> None:
    """Move this thread into the namespace at `path`. Raises `OSError`. `os.setns` came with Python 3.12."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        call("setns", descriptor, kind)
    finally:
        os.close(descriptor)


def call(name: str, *arguments: int) -> None:
    """Make a system call by its name in libc. Raises `OSError`."""
    if getattr(_libc, name)(*arguments):
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def enter_both(user: str, network: str) -> None:
    """Enter two namespaces, by their paths; `-` for none."""
    for path, kind in ((user, NEW_USER), (network, NEW_NETWORK)):
        if path != "-":
            enter(path, kind)


if __name__ == "__main__":
    enter_both(*sys.argv[1:3])
    os.execvp(sys.argv[3], sys.argv[3:])
