"""The token of a user on this machine: made at its first use, and shared by the jobs that stay on loopback."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from ...errors import ConfigurationError
from ...transport.security.token import Token
from .token_files import UnfitTokenError, read_token_file, write_token_file

_NAME = "token"
_SYSTEM_FOLDERS = Path("/run/user")
# Not `TMPDIR`, which some shells and schedulers set for each session: all processes of a user must find one token.
_COMMON_FOLDER = Path("/tmp")  # noqa: S108 - the folder in it is checked

_REMEDY = (
    "or give the job a token of its own: `bringup token --file PATH` makes one, BRINGUP_TOKEN_FILE=PATH has a client "
    "use it"
)


def user_token(environ: Mapping[str, str]) -> Token:
    """Return the token of this user, and make it where there is none; processes that do so at once get the same.

    Args:
        environ: the environment, for `XDG_RUNTIME_DIR`.

    Raises:
        ConfigurationError: it cannot be made, or others may have read or replaced it; names the file.
    """
    path = user_token_path(environ)
    try:
        _ensure_folder(path.parent)
        try:
            return read_token_file(path)
        except FileNotFoundError:
            _make(path)
            return read_token_file(path)
    except UnfitTokenError as error:
        raise ConfigurationError(
            f"{path}, the token of this user for jobs on this machine, {error}. Remove the file, and the next client "
            f"makes it anew; {_REMEDY}."
        ) from None
    except OSError as error:
        raise ConfigurationError(
            f"{path}, the token of this user for jobs on this machine, cannot be read or made: {error.strerror}. See "
            f"to its folder, {_REMEDY}."
        ) from None


def user_token_path(environ: Mapping[str, str], system: Path = _SYSTEM_FOLDERS, common: Path = _COMMON_FOLDER) -> Path:
    """Return the file of this user's token: `XDG_RUNTIME_DIR` is for such, and its usual place where it is not set.

    Neither is taken where it is not this user's: of `sudo`, `su` and containers, the variable may be another's.

    Args:
        environ: the environment.
        system: the folder of the users' runtime folders.
        common: the folder for temporary files of all users.
    """
    for folder in (Path(environ.get("XDG_RUNTIME_DIR", "")), system / str(os.geteuid())):
        if folder.is_absolute() and _is_own(folder):
            return folder / "bringup" / _NAME
    return common / f"bringup-{os.geteuid()}" / _NAME


def _is_own(folder: Path) -> bool:
    """Whether a runtime folder is this user's alone, and either has a token or can be written to."""
    try:
        facts = folder.stat()
        is_own = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o022
        return is_own and (os.access(folder, os.W_OK | os.X_OK) or (folder / "bringup" / _NAME).exists())
    except (OSError, ValueError):  # the latter is of a zero byte
        return False


def _ensure_folder(folder: Path) -> None:
    """Make the folder of the token, or check that nobody else can replace the files in it.

    Raises:
        ConfigurationError: somebody can.
        OSError: it cannot be made.
    """
    with contextlib.suppress(FileExistsError):
        folder.mkdir(0o700)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode):
        complaint = "is no folder"
    elif facts.st_uid != os.geteuid():
        complaint = f"belongs to user {facts.st_uid}, and this process is user {os.geteuid()}'s"
    elif facts.st_mode & 0o077:
        complaint = f"is open to other users (mode {stat.S_IMODE(facts.st_mode):04o}, not 0700)"
    else:
        return
    raise ConfigurationError(
        f"{folder}, the folder for the token of this user for jobs on this machine, {complaint}. Remove it, {_REMEDY}."
    )


def _make(path: Path) -> None:
    """Write a new token, visible only when it is whole; that of a faster process stays."""
    draft = path.with_name(f"{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
    write_token_file(draft, Token.random())
    try:
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()
