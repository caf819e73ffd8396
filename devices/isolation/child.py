"""The child process of an isolated backend: constructs it, and runs its calls one by one.

Started by `BackendProcess` with `sys.executable`, never forked. It ends when the client says so, closes its pipe or
ends itself, whatever native code is at: the kernel sees to it where native code keeps Python from doing so.
"""

from __future__ import annotations

import faulthandler
import os
import queue
import signal
import sys
import threading
from typing import Any, BinaryIO, ClassVar

from ..base import DeviceBackend, Openable
from ..registry import create_backend
from ..thread_stack import stack_of_error
from .frames import (
    CALLS,
    END,
    HEADER_BYTES,
    MalformedPipeFrameError,
    config_from,
    frame_of,
    message_of,
    plain,
    plain_error,
    size_of,
)

# Run with -P, so that the standard library comes from where it should; then with the client's own path, which may have
# come to hold more than its environment says. It comes through the pipe, as an argument has 128 KiB at most.
BOOTSTRAP = f"""\
import json, sys
requests = open(int(sys.argv[1]), "rb")
sys.path[:] = json.loads(requests.read(int.from_bytes(requests.read({HEADER_BYTES}), "big")) or "{{}}").get("path", [])
from {__name__} import main
main(requests)
"""

STACK_SIGNAL: int = getattr(signal, "SIGRTMAX", signal.SIGUSR1)
"""Has the process write its stack."""

_FATAL = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGTERM", "SIGXCPU", "SIGVTALRM")
_FATAL_ON_LINUX = ("SIGPROF", "SIGPOLL", "SIGPWR", "SIGSTKFLT")
GROUP_SIGNALS: frozenset[int] = frozenset(
    {int(getattr(signal, name)) for name in (*_FATAL, *_FATAL_ON_LINUX) if hasattr(signal, name)}
    | set(range(getattr(signal, "SIGRTMIN", 0), getattr(signal, "SIGRTMAX", 0)))
) - {STACK_SIGNAL}
"""Signals that end a process by default, are sent to whole groups, and are no sign of a defect in this process."""

_PR_SET_PDEATHSIG = 1

# Room for one frame of each signal, with the largest registers that there are.
_SIGNAL_STACK_BYTES = 1 << 20
_KEPT: list[object] = []


def main(requests: BinaryIO) -> None:
    """Serve calls until the client closes the pipe.

    Arguments of the process: the descriptors of the pipe that requests come through and of that for answers, and the
    client's process id.

    Args:
        requests: the pipe that requests come through, opened; the path of imports is read from it already.
    """
    client_pid, answers = int(sys.argv[3]), int(sys.argv[2])
    # They are for this process alone, not for what the backend starts.
    for descriptor in (requests.fileno(), answers):
        os.set_inheritable(descriptor, False)
    _die_with(client_pid)
    _take_signals()
    faulthandler.enable(2, all_threads=False)
    inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests, inbox), name="bringup-requests", daemon=True).start()
    _serve(inbox, answers)


def _die_with(client_pid: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # It may have died before. What stands between the two, as a script round the interpreter does, dies with it.
    if os.getppid() == client_pid:
        return
    try:
        os.kill(client_pid, 0)
    except OSError:
        message = f"the client, process {client_pid}, is not there: it has ended, or {sys.executable} hides it"
        os.write(2, f"{message}\n".encode())
        os._exit(1)


def _take_signals() -> None:
    """Outlive signals to the group: they are meant for the client, who decides when its backend ends.

    They are handled, not ignored: whatever the backend starts has them as usual.
    """
    faulthandler.register(STACK_SIGNAL, 2)
    # Handlers run on the stack that faulthandler has just made, which is too small for many at a time.
    _widen_signal_stack()
    for number in GROUP_SIGNALS:
        # One that was ignored from the beginning, as under nohup, stays so.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _do_nothing)
            signal.siginterrupt(number, False)
    # The client had them held back until here, for this process and so for all that it starts.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {*GROUP_SIGNALS, STACK_SIGNAL})


def _widen_signal_stack() -> None:
    if sys.platform != "linux":
        return
    import ctypes

    class StackT(ctypes.Structure):
        _fields_: ClassVar = [("ss_sp", ctypes.c_void_p), ("ss_flags", ctypes.c_int), ("ss_size", ctypes.c_size_t)]

    memory = ctypes.create_string_buffer(_SIGNAL_STACK_BYTES)
    if ctypes.CDLL(None).sigaltstack(ctypes.byref(StackT(ctypes.addressof(memory), 0, len(memory))), None) == 0:
        _KEPT.append(memory)


def _do_nothing(*_: object) -> None:
    return


def _read(requests: BinaryIO, inbox: queue.SimpleQueue[dict[str, Any]]) -> None:
    while len(header := requests.read(HEADER_BYTES)) == HEADER_BYTES and header != END:
        inbox.put(message_of(requests.read(size_of(header))))
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
            answer = {"error": plain_error(error, stack_of_error(error))}
        _send(answers, answer)


def _make(request: dict[str, Any]) -> DeviceBackend:
    backend = create_backend(request["device_type"], config_from(request["config"]))
    if isinstance(backend, Openable):
        backend.open()
    return backend


def _call(backend: DeviceBackend, call: str) -> object:
    assert call in CALLS
    return plain(call, getattr(backend, call)())


def _send(answers: int, answer: dict[str, Any]) -> None:
    try:
        frame = frame_of(answer)
    except (MalformedPipeFrameError, TypeError, ValueError) as error:
        frame = frame_of({"error": plain_error(error)})
    view = memoryview(frame)
    while view:
        view = view[os.write(answers, view) :]
