"""The other libraries that `bringup bench failure --peers` measures: how their clients hear that another was killed."""

from __future__ import annotations

import importlib
import inspect
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from ..libraries import JAX, TORCH
from .faults import describe

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..libraries import Measured
    from ..worker import Place, Station

HEARTBEAT_TIMEOUT = 10
"""Seconds; jax's `heartbeat_timeout_seconds`, whose default is 100."""

PATIENCE = 120.0
"""Seconds until a survivor that was told nothing has hung."""


@dataclass(frozen=True, slots=True)
class FailurePeer:
    """Another library; the harness's `Library`.

    Attributes:
        measured: The library as it is.
        phase: What the survivors do when the other is killed, as the table says it.
        wait: Brings one client up, says `placed`, and makes the call that is to find out.
    """

    measured: Measured
    phase: str
    wait: Callable[[Place, Station], None]

    def load(self) -> None:
        """Import the library."""
        self.measured.load()

    def work(self, place: Place, station: Station) -> None:
        """Wait for the fault, and say what was raised; the process may be ended instead."""
        try:
            self.wait(place, station)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is how this library tells
            station.say("told", {"at": time.monotonic(), **describe(error)})


def _jax(place: Place, station: Station) -> None:
    distributed = importlib.import_module("jax").distributed
    known = inspect.signature(distributed.initialize).parameters
    name = "heartbeat_timeout_seconds"
    options = {name: HEARTBEAT_TIMEOUT} if name in known else {}
    address = place.jobs[0]
    distributed.initialize(address, place.num_clients, place.client_id, coordinator_bind_address=address, **options)
    station.say("placed", None)
    station.wait_until_told()


def _torch(place: Place, station: Station) -> None:
    distributed = importlib.import_module("torch.distributed")
    distributed.init_process_group(
        "gloo",
        init_method=f"tcp://{place.jobs[0]}",
        world_size=place.num_clients,
        rank=place.client_id,
        timeout=timedelta(seconds=PATIENCE),
    )
    station.say("placed", None)
    if place.orders["part"] == "survivor":
        distributed.barrier()
    station.wait_until_told()


JAX_IDLE = FailurePeer(JAX, "idle", _jax)
TORCH_BARRIER = FailurePeer(TORCH, "barrier", _torch)
FAILURE_PEERS = {"JAX_IDLE": JAX_IDLE, "TORCH_BARRIER": TORCH_BARRIER}


def spec(attribute: str) -> str:
    """The harness's name of a library of `FAILURE_PEERS`."""
    return f"{__name__}:{attribute}"
