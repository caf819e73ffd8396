"""The process of a `ForkServer`: imports modules, then forks a program for each request."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from typing import Any

from .fork_server import REQUEST
from .groups import kill_group
from .program import PythonProgram

_DESCRIPTORS = 4


def main() -> None:
    """Serve until the other side closes its connection; in a process that was forked, be its program.

    Arguments of the process: the descriptor of the connection, and the modules.
    """
    control = socket.socket(fileno=int(sys.argv[1]))
    if not sys.flags.safe_path:
        del sys.path[0]  # what stands there for `-c`
    before = dict(os.environ)
    for module in sys.argv[2:]:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    if (threads := _count_threads()) > 1:
        sys.exit(f"the modules run {threads - 1} threads once imported, so that nothing can be forked")
    # A collection in a program would copy the pages that it shares with this process.
    gc.collect()
    gc.freeze()
    control.sendall(b".")
    if (program := _Server(control, _added(before)).serve()) is not None:
        program.run()


def _added(before: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the modules have set at their import, for libraries that read them."""
    return {name: value for name, value in os.environ.items() if name not in before}


def _count_threads() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


class _Server:
    def __init__(self, control: socket.socket, settings: Mapping[str, str]) -> None:
        self._control = control
        self._settings = settings
        self._groups: set[int] = set()
        self._status_pipes: dict[int, int] = {}  # by process
        self._watches: dict[int, int] = {}  # the processes by their pidfds
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)

    def serve(self) -> PythonProgram | None:
        """Return a program in the process that is to be it, and `None` in the server, once nobody needs it."""
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor in self._watches:
                    self._reap(descriptor)
                    continue
                request, descriptors = self._receive()
                if request is None:
                    self._end()
                    return None
                if "forget" in request:
                    self._groups.discard(request["forget"])
                elif self._fork(descriptors) == 0:
                    self._become(request, descriptors)
                    return PythonProgram.of_json(request["program"])

    def _receive(self) -> tuple[dict[str, Any] | None, list[int]]:
        header, descriptors, _, _ = socket.recv_fds(self._control, REQUEST.size, _DESCRIPTORS)
        if len(header) < REQUEST.size:
            return None, descriptors
        (missing,) = REQUEST.unpack(header)
        data = bytearray()
        while len(data) < missing:
            if not (piece := self._control.recv(missing - len(data))):
                return None, descriptors
            data += piece
        return json.loads(data), descriptors

    def _fork(self, descriptors: list[int]) -> int:
        """Return 0 in the new process."""
        *streams, status = descriptors
        try:
            pid = os.fork()
        except OSError as error:
            os.write(status, f"{error}\n".encode())
            for descriptor in descriptors:
                os.close(descriptor)
            return -1
        if pid == 0:
            return 0
        self._groups.add(pid)
        watch = os.pidfd_open(pid)
        self._watches[watch] = pid
        self._status_pipes[pid] = status
        self._poll.register(watch, select.POLLIN)
        for descriptor in streams:
            os.close(descriptor)
        return pid

    def _become(self, request: Mapping[str, Any], descriptors: list[int]) -> None:
        """Leave the server's session, descriptors and environment for those of the program."""
        *streams, status = descriptors
        os.setsid()
        for target, descriptor in enumerate(streams):
            os.dup2(descriptor, target)
        for descriptor in (*streams, *self._watches, *self._status_pipes.values()):
            os.close(descriptor)
        self._control.close()
        os.environ.clear()
        os.environ.update(self._settings)
        os.environ.update(request["environ"])
        try:
            os.chdir(request["cwd"])
        except OSError as error:
            os.write(status, str(error).encode())
            os._exit(1)
        # Only now is there a group to be sent signals, and nothing of the server's left to be held by a program.
        os.write(status, b"+%d\n" % os.getpid())
        os.close(status)

    def _reap(self, watch: int) -> None:
        pid = self._watches.pop(watch)
        _, status = os.waitpid(pid, 0)
        self._poll.unregister(watch)
        os.close(watch)
        pipe = self._status_pipes.pop(pid)
        self._tell(pipe, os.waitstatus_to_exitcode(status))
        os.close(pipe)

    def _tell(self, pipe: int, number: int) -> None:
        with contextlib.suppress(BrokenPipeError):  # nobody wants to know
            os.write(pipe, b"%d\n" % number)

    def _end(self) -> None:
        for group in self._groups:
            kill_group(group)
        for pid in self._status_pipes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
