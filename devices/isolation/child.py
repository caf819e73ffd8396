"""The child process of an isolated backend: makes the backend, and carries out one call after another.

Started by `BackendProcess` with `sys.executable`, never forked. It ends when the client closes its pipe or ends itself,
whatever native code is at: the kernel sees to it where native code keeps Python from doing so.
"""

from __future__ import annotations

import faulthandler
import os
import queue
import signal
import sys
import threading
from typing import Any

from ..base import DeviceBackend, Openable
from ..registry import create_backend
from .frames import (
    CALLS,
    HEADER_BYTES,
    MalformedFrameError,
    config_from,
    frame_of,
    message_of,
    plain,
    plain_error,
    size_of,
)

__all__ = ["BOOTSTRAP", "main"]

# Run with -P, so that the standard library comes from where it should; then with the client's own path, which may have
# come to hold more than its environment says.
BOOTSTRAP = f"import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {__name__} import main; main()"

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve until the client has enough. Arguments: the path of imports as JSON, and the client's process id."""
    _die_with(int(sys.argv[2]))
    requests, answers = _take_pipes()
    # They are sent to whole groups of processes, and meant for the client: it decides when its backend ends.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    faulthandler.enable(2, all_threads=False)
    faulthandler.register(signal.SIGUSR1, 2)
    inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests, inbox), name="bringup-requests", daemon=True).start()
    _serve(inbox, answers)


def _die_with(client_pid: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # It may have died before.
    if os.getppid() != client_pid:
        os._exit(1)


def _take_pipes() -> tuple[int, int]:
    """Keep the pipes for frames alone: what libraries print goes where their complaints go."""
    requests, answers = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    return requests, answers


def _read(requests: int, inbox: queue.SimpleQueue[dict[str, Any]]) -> None:
    with os.fdopen(requests, "rb") as stream:
        while len(header := stream.read(HEADER_BYTES)) == HEADER_BYTES:
            inbox.put(message_of(stream.read(size_of(header))))
    # Without a word to native code, which may be in the middle of something that never ends.
    os._exit(0)


def _serve(inbox: queue.SimpleQueue[dict[str, Any]], answers: int) -> None:
    backend: DeviceBackend | None = None
    while True:
        request = inbox.get()
        answer: dict[str, object]
        try:
            if backend is None:
                backend = _make(request)
                answer = {"result": {"device_type": backend.device_type, "simulated": backend.simulated}}
            else:
                answer = {"result": _call(backend, request["call"])}
        except BaseException as error:  # noqa: BLE001 - the client raises it
            answer = {"error": plain_error(error)}
        _send(answers, answer)


def _make(request: dict[str, Any]) -> DeviceBackend:
    backend = create_backend(request["device_type"], config_from(request["config"]))
    if isinstance(backend, Openable):
        backend.open()
    return backend


def _call(backend: DeviceBackend, call: str) -> object:
    assert call in CALLS
    result = getattr(backend, call)()
    return plain(tuple(result) if call == "start" else result)


def _send(answers: int, answer: dict[str, Any]) -> None:
    try:
        frame = frame_of(answer)
    except (MalformedFrameError, TypeError, ValueError) as error:
        frame = frame_of({"error": plain_error(error)})
    view = memoryview(frame)
    while view:
        view = view[os.write(answers, view) :]
