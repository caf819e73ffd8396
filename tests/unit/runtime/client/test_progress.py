"""Progress of a waiting bring-up: its lines on a terminal or in the log, and their intervals."""

from __future__ import annotations

import asyncio
import os
import pty
import struct
import sys
import termios
import threading
from dataclasses import dataclass, field
from fcntl import ioctl
from typing import Any

import pytest

from bringup.runtime.client import progress as module
from bringup.runtime.client.output import open_output
from bringup.runtime.client.progress import describe, fit, show_progress
from bringup.runtime.drivers.latch import Latch
from bringup.runtime.machines.phases import Phase, Progress

MISSING = {1: "127.0.0.1:19001", 2: "127.0.0.1:19002"}
WAITING = "client 1 (127.0.0.1:19001), client 2 (127.0.0.1:19002)"


@dataclass
class Machine:
    """Answers as a peer's machine does; ends the test when it has been asked so often."""

    asked: int = 0
    on_asked: Any = None
    now: float = 10.0
    config: Any = field(default_factory=lambda: type("Config", (), {"client_id": 0}))

    def progress(self, now: float) -> Progress:
        self.asked += 1
        if self.on_asked is not None:
            self.on_asked(self.asked)
        return Progress(Phase.RENDEZVOUS, self.now, MISSING, WAITING)


class Peer:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def clock(self) -> float:
        return 0.0


def test_a_line_is_cut_to_the_width_of_the_terminal() -> None:
    line = describe(0, Progress(Phase.RENDEZVOUS, 2.0, MISSING, WAITING))
    assert line == f"client 0 in phase rendezvous for 2 s, waiting for {WAITING}"
    assert fit(line, 80) == line[:76] + "..."
    assert fit(line, len(line) + 1) == line
    assert fit(line, 1) == "..."


def test_the_width_is_looked_at_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    terminal = open(theirs, "w")  # noqa: SIM115 - closed below
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(module, "_LINE_PATIENCE", 0.0)
    monkeypatch.setattr(module, "_LINE_INTERVAL", 0.0)
    up: Latch[None] = Latch()
    shown: list[bytes] = []
    widths = [40, 60, 0]

    def on_asked(times: int) -> None:
        if times > 1:
            shown.append(os.read(ours, 4096))  # the line before is out
        if times > len(widths):
            up.set(None)
        else:
            ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 14, widths[times - 1], 0, 0))

    def run() -> None:
        output = open_output("test")
        asyncio.run(show_progress(Peer(Machine(on_asked=on_asked)), up))  # type: ignore[arg-type]
        output.close(30)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    rows = [row.replace(b"\r\x1b[2K", b"") for row in shown]
    assert [len(row) for row in rows] == [39, 59, 79]
    assert all(row.startswith(b"bringup: client 0 in phase ") for row in rows)
    assert os.read(ours, 4096).endswith(b"\r\x1b[2K")
    terminal.close()
    os.close(ours)


def test_off_a_terminal_it_warns_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    machine, pauses = Machine(now=0.0), []
    up: Latch[None] = Latch()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        machine.now += seconds
        if len(pauses) == 5:
            up.set(None)

    monkeypatch.setattr(module.asyncio, "sleep", sleep)
    asyncio.run(show_progress(Peer(machine), up))  # type: ignore[arg-type]
    assert pauses == [10.0, 10.0, 20.0, 40.0, 80.0]
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 4
    assert caplog.records[0].getMessage() == f"client 0 in phase rendezvous for 10 s, waiting for {WAITING}"
