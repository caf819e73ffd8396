"""The clients of `bringup bench scale`: they come up, wait, and report the failure that they are told of."""

from __future__ import annotations

import asyncio
import importlib
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from ....errors import BringupError
from ....runtime.initialize import initialize
from ..libraries import BRINGUP, describe

if TYPE_CHECKING:
    from ..worker import Assignment, HostPipe

_MODULES = ("bringup.devices.cpu.backend", "grpc._utilities")


class ScaleClient:
    """The `Program` of the clients; the orders of each are the `backend` and the `options` of `initialize()`."""

    def load(self) -> None:
        """Import all that the clients need."""
        BRINGUP.load()
        for module in _MODULES:
            importlib.import_module(module)

    def work(self, assignment: Assignment, host: HostPipe) -> None:
        """Come up, report `returned`, and then `told` with the time and the error; leave when ordered to."""
        asyncio.run(_come_up_and_wait(assignment, host))


async def _come_up_and_wait(assignment: Assignment, host: HostPipe) -> None:
    orders = assignment.orders
    system = await initialize(
        orders["backend"], jobs=assignment.jobs, client_id=assignment.client_id, **orders["options"]
    )
    host.returned()
    error = await system.wait_failed()
    assert error is not None, "the job ended in order while nobody left"
    host.say("told", {"at": time.monotonic(), **describe(error)})
    # The ends of the first would take the processor from those that are still to be told.
    await asyncio.to_thread(host.wait_for_order)
    with suppress(BringupError):
        await system.shutdown()


SCALE_CLIENT = ScaleClient()
