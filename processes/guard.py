"""A guard process, which kills child processes when the process that started them is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from . import guard_script

_SCRIPT = (sys.executable, "-I", "-S", guard_script.__file__)

_END_TIMEOUT = 2.0
"""Seconds that a guard may take to kill what is on its list, and end."""


class Guard:
    """A guard process, from its start until `close`; see `guard_script`.

    Args:
        folder: to be removed then, with the files in it.
    """

    def __init__(self, folder: str | None = None) -> None:
        reading, self.pipe = os.pipe()
        with open(reading, "rb") as stdin:
            self._process = subprocess.Popen(
                [*_SCRIPT, "watch", *([] if folder is None else [folder])],
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def joined(self, command: Sequence[str]) -> list[str]:
        """Return a command that announces its process to the guard, and becomes `command`.

        The process must lead a group, and inherit the descriptor `pipe`.
        """
        return [*_SCRIPT, "join", str(self.pipe), *command]

    def forget(self, group: int) -> None:
        """Take a group that has ended off the list: its number may become somebody else's."""
        try:
            os.write(self.pipe, b"-%d\n" % group)
        except BrokenPipeError:
            pass  # somebody has killed the guard

    def close(self) -> None:
        """Release the guard, which kills the groups on its list."""
        os.close(self.pipe)
        try:
            self._process.wait(_END_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
