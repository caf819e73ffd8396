"""A stand-in for Hydra, the launcher of MPICH: the sockets of its processes, and PMI version 1 at their other ends."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Self


class PMILauncher:
    """Serves `size` processes, each from a thread; `heard` has their lines, `barriers` counts arrivals at a barrier.

    Args:
        size: the number of processes.
        answer: returns the reply to a line in place of the launcher's own; `None` for that one. `hang up` ends.
    """

    def __init__(self, size: int, answer: Callable[[str], str | None] = lambda line: None) -> None:
        self.size = size
        self.heard: list[str] = []
        self.barriers = threading.Semaphore(0)
        self._answer = answer
        self._values: dict[str, str] = {}
        self._barrier = threading.Barrier(size)
        pairs = [socket.socketpair() for _ in range(size)]
        self._ours = [ours for ours, _ in pairs]
        self.theirs = [theirs for _, theirs in pairs]
        self._threads = [threading.Thread(target=self._serve, args=(ours,), daemon=True) for ours in self._ours]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._barrier.abort()
        for each in (*self.theirs, *self._ours):
            each.close()
        for thread in self._threads:
            thread.join()

    def environments(self) -> list[dict[str, str]]:
        """Return the variables of each process."""
        size = str(self.size)
        return [
            {"PMI_FD": str(theirs.fileno()), "PMI_RANK": str(rank), "PMI_SIZE": size}
            for rank, theirs in enumerate(self.theirs)
        ]

    def _serve(self, ours: socket.socket) -> None:
        with ours, ours.makefile("rw", newline="\n") as lines:
            try:
                for line in lines:
                    self.heard.append(line.rstrip("\n"))
                    reply = self._answer(line) or self._reply(dict(w.partition("=")[::2] for w in line.split()))
                    if reply == "hang up":
                        ours.shutdown(socket.SHUT_RDWR)
                        return
                    lines.write(f"{reply}\n")
                    lines.flush()
            except (OSError, threading.BrokenBarrierError):
                return

    def _reply(self, words: dict[str, str]) -> str:
        match words["cmd"]:
            case "init":
                return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
            case "get_my_kvsname":
                return "cmd=my_kvsname kvsname=kvs_27537_0_921572645_vm"
            case "put":
                self._values[words["key"]] = words["value"]
                return "cmd=put_result rc=0 msg=success"
            case "barrier_in":
                self.barriers.release()
                self._barrier.wait()
                return "cmd=barrier_out"
            case "finalize":
                return "cmd=finalize_ack"
            case "get" if words["key"] in self._values:
                return f"cmd=get_result rc=0 msg=success value={self._values[words['key']]}"
            case _:
                return "cmd=get_result rc=-1 msg=key_not_found value=unknown"
