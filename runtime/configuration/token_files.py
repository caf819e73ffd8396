"""Files and descriptors that hold a token: read only where nobody else can have replaced it, written for the owner."""

from __future__ import annotations

import os
import select
import stat
import time

from ...transport.security.token import Token

_BYTES_MAX = 256
"""Far more than the 64 digits of a token, with the white space around them."""

_PIPE_TIMEOUT = 5.0
"""Seconds for the writer of a pipe to write the token and close it: it has done so before it starts a client."""

_KINDS = (
    (stat.S_ISREG, "a regular file"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a terminal or another device"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISFIFO, "a pipe"),
)


class UnfitTokenError(ValueError):
    """A file or descriptor holds no token, or is not to be trusted with one; the text is a predicate of it."""


def read_token_file(path: str | os.PathLike[str]) -> Token:
    """Return the token in a file.

    Raises:
        UnfitTokenError: it is not a regular file of this user which nobody else may use, or holds no token.
        OSError: it cannot be opened.
    """
    try:
        # Without O_NONBLOCK, a pipe without a writer would hold this process up for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        if os.path.islink(path):
            raise UnfitTokenError(
                "is a symbolic link, as in a volume of Kubernetes, and somebody may point it elsewhere: name the file "
                "itself, or have a shell open it: BRINGUP_TOKEN_FD=3 COMMAND 3<PATH"
            ) from None
        raise
    except ValueError:  # a zero byte
        raise UnfitTokenError("is no path of a file") from None
    try:
        _check_private(os.fstat(descriptor))
        return _parse(os.read(descriptor, _BYTES_MAX + 1))
    finally:
        os.close(descriptor)


def write_token_file(path: str | os.PathLike[str], token: Token) -> None:
    """Write a token to a new file for this user alone; nothing is left where that fails.

    Raises:
        OSError: there is one of this name, or it cannot be written.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb", buffering=0) as file:
            file.write(f"{token.to_text()}\n".encode())
            os.fsync(descriptor)  # a file system that is full may say so only now
    except BaseException:
        os.unlink(path)
        raise


def read_token_descriptor(descriptor: int) -> Token:
    """Return the token in an open file, which is read from its start and stays open, or in a pipe.

    Raises:
        UnfitTokenError: it is something else, or holds no token.
        OSError: it is not open, or cannot be read.
    """
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        # The clients of a launcher share one offset.
        return _parse(os.pread(descriptor, _BYTES_MAX + 1, 0))
    if stat.S_ISFIFO(mode):
        return _parse(_read_pipe(descriptor))
    raise UnfitTokenError(f"is {_kind_of(mode)}, and no file or pipe")


def token_descriptor(token: Token) -> int:
    """Return a descriptor of a file in memory that holds a token, for child processes to read.

    Raises:
        OSError: there can be none.
    """
    descriptor = os.memfd_create("bringup-token", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.write(descriptor, token.to_text().encode())
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _read_pipe(descriptor: int) -> bytes:
    """Return the content of a pipe up to its end, or more than a token has."""
    data = b""
    deadline = time.monotonic() + _PIPE_TIMEOUT
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while len(data) <= _BYTES_MAX:
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise UnfitTokenError(f"is a pipe that nobody has written to and closed within {_PIPE_TIMEOUT:g} s")
        if not (piece := os.read(descriptor, _BYTES_MAX)):
            break
        data += piece
    return data


def _check_private(facts: os.stat_result) -> None:
    if not stat.S_ISREG(facts.st_mode):
        raise UnfitTokenError(f"is {_kind_of(facts.st_mode)}, and no regular file")
    if facts.st_uid != os.geteuid():
        raise UnfitTokenError(
            f"belongs to user {facts.st_uid}, and this process is user {os.geteuid()}'s: give it a copy of its own, or "
            "have a shell open it: BRINGUP_TOKEN_FD=3 COMMAND 3<PATH"
        )
    if facts.st_mode & 0o077:
        raise UnfitTokenError(
            f"is open to other users (mode {stat.S_IMODE(facts.st_mode):04o}), who may know the token by now: make "
            "another by `bringup token --file PATH`, or run chmod 600 on it if you are sure"
        )


def _parse(data: bytes) -> Token:
    if len(data) > _BYTES_MAX:
        raise UnfitTokenError(f"holds no token: it has more than {_BYTES_MAX} bytes")
    try:
        return Token.parse(data.decode("ascii", errors="replace"))
    except ValueError as error:
        complaint = str(error)
    # Not in the handler: the frames of its error hold the text.
    raise UnfitTokenError(f"holds no token: its content {complaint}")


def _kind_of(mode: int) -> str:
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), "something strange")
