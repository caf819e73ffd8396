"""The loop of a driver tells its machine when nothing is unread."""

from __future__ import annotations

import asyncio

from bringup.runtime.drivers.loop import drive


class Listener:
    """A machine that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def handle(self, event: str, now: float) -> list[str]:
        self.told.append(event)
        return []

    def wake(self, now: float) -> list[str]:
        raise AssertionError("it is never due")

    def caught_up(self, now: float) -> None:
        self.told.append("caught up")

    def deadline(self) -> float | None:
        return None


async def test_a_machine_is_told_that_it_has_read_all_as_it_begins_and_where_its_inbox_was_empty_as_it_waited() -> None:
    machine = Listener()
    inbox: asyncio.Queue[str | None] = asyncio.Queue()
    for event in ("one", "two", "three"):
        inbox.put_nowait(event)
    task = asyncio.ensure_future(drive(machine, inbox, lambda effect: None, lambda: 0.0, lambda: False))
    for _ in range(10):
        await asyncio.sleep(0)
    assert machine.told == ["caught up", "one", "two", "three"]
    inbox.put_nowait("four")
    inbox.put_nowait(None)
    await task
    assert machine.told == ["caught up", "one", "two", "three", "caught up", "four"]
