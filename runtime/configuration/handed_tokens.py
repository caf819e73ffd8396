"""The token that this process was handed when it was started: by a descriptor, or by a variable of its environment."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Mapping, MutableMapping

from ...transport.security.token import Token
from .settings import Origin, Setting, as_integer
from .token_files import UnfitTokenError, read_token_descriptor

TOKEN = "BRINGUP_TOKEN"  # noqa: S105 - the name of a variable
TOKEN_FD = "BRINGUP_TOKEN_FD"  # noqa: S105 - the name of a variable

_DESCRIPTOR_MAX = 2**31 - 1


class HandedTokens:
    """The tokens handed to one process, kept for all calls of `initialize()`: a pipe can be read only once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of_variable: Setting | None = None
        self._of_descriptors: dict[object, Token] = {}

    def take(self, environ: MutableMapping[str, str]) -> dict[str, str]:
        """Remove the token from an environment, where child processes and crash reports would find it.

        Returns:
            A copy of the environment, without it.
        """
        with self._lock:
            text = Setting.from_environ(environ, TOKEN, secret=True)
            environ.pop(TOKEN, None)
            if text.is_set:
                self._of_variable = text
            return dict(environ)

    @property
    def of_variable(self) -> Setting:
        """The text of `BRINGUP_TOKEN`, if it was set when `take` was called last, or before."""
        return self._of_variable or Setting(TOKEN, None, Origin.ENVIRONMENT, secret=True)

    def of_descriptor(self, setting: Setting) -> Token:
        """Return the token in a descriptor, which is read at the first call.

        Raises:
            ConfigurationError: it is not open, or holds no token.
        """
        with self._lock:
            if setting.value not in self._of_descriptors:
                self._of_descriptors[setting.value] = _read(setting)
            return self._of_descriptors[setting.value]


HANDED = HandedTokens()
"""Those of this process."""


def descriptor_setting(environ: Mapping[str, str]) -> Setting:
    """Return the setting with the number of the descriptor."""
    return Setting.from_environ(environ, TOKEN_FD)


def _read(setting: Setting) -> Token:
    number = as_integer(setting, "the number of an open descriptor", least=0, most=_DESCRIPTOR_MAX)
    try:
        return read_token_descriptor(number)
    except UnfitTokenError as error:
        raise setting.error(f"names a descriptor that {error}: hand over a file, or a pipe, with a token") from None
    except OSError as error:
        if error.errno != errno.EBADF:
            raise setting.error(f"names a descriptor that cannot be read: {os.strerror(error.errno or 0)}") from None
        raise setting.error(
            "names a descriptor that is not open for reading in this process: a program between it and its launcher "
            f"has closed it. Have that hand it on, in Python by subprocess.run(..., pass_fds=({number},)), or give the "
            "job a token in a file: BRINGUP_TOKEN_FILE"
        ) from None
