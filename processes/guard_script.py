"""No client outlives its launcher, however that ends. Run as a script, without the rest of bringup, to be quick.

`watch [FOLDER]`: reads process groups from its standard input, `+PGID` for one more and `-PGID` for one less. When the
input ends, it kills those that are left, and removes FOLDER and the files in it. A launcher that is killed can do
nothing more, but its pipe ends with it.

`join FD COMMAND...`: announces this process, which leads its group, on pipe FD and becomes COMMAND. It is the client
that announces itself: its launcher may be killed between starting it and writing down that it did.
"""

from __future__ import annotations

import os
import signal
import sys

_CANNOT_EXECUTE = 126
_NOT_FOUND = 127


def watch(folder: str | None = None) -> None:
    """Kill the announced groups that are left when standard input ends, and remove `folder`."""
    groups: set[int] = set()
    for line in sys.stdin.buffer:
        (groups.add if line.startswith(b"+") else groups.discard)(int(line[1:]))
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except OSError:
            pass  # it is gone
    if folder is not None:
        try:
            for name in os.listdir(folder):
                os.unlink(os.path.join(folder, name))
            os.rmdir(folder)
        except OSError:
            pass  # its launcher has removed it


def join(pipe: int, command: list[str]) -> None:
    """Announce this process and become `command`."""
    os.write(pipe, b"+%d\n" % os.getpid())
    os.close(pipe)
    # A process inherits what its predecessor ignored: Python the first two, a shell the third, in the background. But
    # the launcher passes that one on.
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"bringup: cannot run {command[0]!r}: {error.strerror}", file=sys.stderr)
        sys.exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _CANNOT_EXECUTE)


if __name__ == "__main__":
    if sys.argv[1] == "watch":
        watch(*sys.argv[2:])
    else:
        join(int(sys.argv[2]), sys.argv[3:])
