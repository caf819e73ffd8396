"""The question to a cluster resolver within `initialize()`: answered, refused, cancelled, interrupted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping

import pytest

import bringup
from bringup.resolvers.base import ClusterJob
from bringup.runtime.drivers.latch import Latch


class Waiting:
    """A cluster of one client that answers when it may."""

    name = "waiting"

    def __init__(self) -> None:
        self.asked: Latch[None] = Latch()
        self.may_answer: Latch[None] = Latch()
        self.cancelled: Latch[None] = Latch()
        self.thread = ""

    def detect(self, environment: Mapping[str, str]) -> bool:
        return True

    async def resolve(self, environment: Mapping[str, str]) -> ClusterJob:
        self.thread = threading.current_thread().name
        self.asked.set(None)
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.cancelled.set(None)
            raise
        return ClusterJob(num_clients=1, client_id=0, coordinator_address="head:1")


async def test_the_callers_loop_goes_on_while_a_resolver_waits() -> None:
    cluster = Waiting()
    coming = asyncio.create_task(_up(cluster))
    await cluster.asked.wait()
    cluster.may_answer.set(None)
    await coming
    assert cluster.thread == "bringup-resolve"


async def _up(cluster: Waiting) -> None:
    async with bringup.initialize("SIM", resolver=cluster) as system:
        assert (system.num_clients, system.job_name) == (1, "localhost")
        with pytest.raises(bringup.AlreadyInitializedError):
            await bringup.initialize("SIM", resolver=Waiting())


async def test_cancelling_ends_the_question() -> None:
    cluster = Waiting()
    coming = asyncio.create_task(_up(cluster))
    await cluster.asked.wait()
    coming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await coming
    assert cluster.cancelled.is_set
    with pytest.raises(bringup.NotInitializedError):
        bringup.current()


async def test_a_resolver_has_the_time_of_the_initialization() -> None:
    cluster = Waiting()
    with pytest.raises(bringup.ConfigurationError, match=r"'waiting' had no answer within 0.05 s \(initialization"):
        await bringup.initialize("SIM", resolver=cluster, initialization_timeout=0.05)
    assert cluster.cancelled.is_set


def test_the_blocking_face_asks_too() -> None:
    cluster = Waiting()
    cluster.may_answer.set(None)
    with bringup.sync.initialize("SIM", resolver=cluster) as system:
        assert system.num_clients == 1
    with pytest.raises(bringup.ConfigurationError, match=r"0\.05 s"):
        bringup.sync.initialize("SIM", resolver=Waiting(), initialization_timeout=0.05)
