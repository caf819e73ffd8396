"""Real processes: a runtime that raises what nobody expected, and Ctrl-C in a collective, end all with the cause."""

from __future__ import annotations

import sys

import pytest

from bringup.testing.job import LocalJob

BROKEN = """
import bringup
from bringup.runtime.machines.coordinator.machine import CoordinatorMachine
from bringup.runtime.machines.peer.machine import PeerMachine
def broken(*_):
    raise AssertionError("injected")
with bringup.sync.initialize("SIM") as system:
    system.barrier("all are up")
    if system.client_id == {culprit}:
        {machine}.handle = broken
    system.wait_failed()
"""

INTERRUPTED = """
import os, signal, threading, bringup
from bringup.runtime.client.active import ACTIVE
def interrupt():
    while not ACTIVE.get().peer.progress.is_waiting:
        threading.Event().wait(0.01)
    os.kill(os.getpid(), signal.SIGINT)
with bringup.sync.initialize("SIM") as system:
    system.barrier("all are up")
    if system.client_id == 0:
        threading.Thread(target=interrupt, daemon=True).start()
        system.all_reduce([1])
    system.wait_failed()
"""


@pytest.mark.parametrize(
    ("culprit", "machine"), [(0, "CoordinatorMachine"), (0, "PeerMachine"), (1, "PeerMachine")], ids=str
)
def test_a_machine_that_raises_ends_all_clients_with_its_cause(culprit: int, machine: str) -> None:
    program = BROKEN.format(culprit=culprit, machine=machine)
    with LocalJob(2, command=[sys.executable, "-c", program], fork=True) as job:
        job.start()
        assert job.wait() == {0: 1, 1: 1}
        for client in job.clients.values():
            assert f"internal error in the runtime of client {culprit}: AssertionError: injected" in client.log


def test_ctrl_c_in_a_collective_ends_it_for_all() -> None:
    with LocalJob(2, command=[sys.executable, "-c", INTERRUPTED], fork=True) as job:
        job.start()
        assert job.wait()[1] == 1
        assert "KeyboardInterrupt" in job.clients[0].log.splitlines()[-1]
        assert "client 0" in job.clients[1].log
        assert "KeyboardInterrupt" in job.clients[1].log
