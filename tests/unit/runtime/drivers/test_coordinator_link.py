"""A peer's connections with the coordinator, one after another: what was given up is forgotten."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

from bringup.runtime.drivers.coordinator_link import CoordinatorLink
from bringup.runtime.drivers.crash import let_crash
from bringup.transport.ports import Connection, Network

from ....lib.peer_configs import peer_config


class SilentNetwork:
    """One over which nobody answers."""

    def __init__(self) -> None:
        self.dialled = asyncio.Event()

    async def connect_coordinator(self, *_: object, expected: bool) -> tuple[Connection, str]:
        self.dialled.set()
        await asyncio.Event().wait()
        raise AssertionError(expected)


async def test_a_dial_that_was_given_up_leaves_nothing_behind() -> None:
    network = SilentNetwork()
    config = peer_config(2, coordinator_address="host-0:1")
    tasks: list[asyncio.Task[None]] = []

    def spawn(work: Any) -> asyncio.Task[None]:
        tasks.append(asyncio.create_task(work))
        return tasks[-1]

    link = CoordinatorLink(
        config,
        cast(Network, network),
        serve_locally=None,
        spawn=spawn,
        inbox=asyncio.Queue(),
        on_dial_report=lambda _: None,
        clock=time.monotonic,
        on_crash=let_crash,
    )
    link.connect(1, str)
    await network.dialled.wait()
    link.connect(2, str)
    await asyncio.wait(tasks)
    assert tasks[0].cancelled()
    assert not link._carriers
    await link.finish()
