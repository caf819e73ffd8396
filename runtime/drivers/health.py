"""This client's devices: brought up once, then checked at an interval as long as the job runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from ...devices.base import Health
from ...devices.health_filter import HealthFilter
from ...devices.thread import BackendThread
from ...errors import BringupError, DeviceInitializationError
from ..machines.peer import events as ev

_STOP_TIMEOUT = 2.0
"""Seconds that a backend may take to release its devices: a hung driver must not keep a job from ending. Then its
thread, which cannot be killed, is left behind."""


class DeviceWatch:
    """One client's devices.

    Args:
        backend: the devices.
        client_id: of this client.
        opening_timeout: seconds that it may take to make the backend.
        device_timeout: seconds that a call of the backend may take.
        interval: seconds between two health checks.
    """

    def __init__(
        self, backend: BackendThread, client_id: int, *, opening_timeout: float, device_timeout: float, interval: float
    ) -> None:
        self._backend = backend
        self._client_id = client_id
        self._opening_timeout = opening_timeout
        self._device_timeout = device_timeout
        self._interval = interval

    @property
    def device_type(self) -> str:
        """The type of the devices; known once they are up."""
        return self._backend.device_type

    @property
    def simulated(self) -> bool:
        """Whether the devices do not exist; known once they are up."""
        return self._backend.simulated

    async def start(self, tag: ev.Tag) -> ev.BackendStarted | ev.BackendFailed:
        """Bring the devices up, and check their health once."""
        try:
            await self._backend.open(self._opening_timeout)
            devices = await self._backend.start(self._device_timeout)
            health = await self._backend.check_health(self._device_timeout)
        except BringupError as error:
            return ev.BackendFailed(tag, error)
        return ev.BackendStarted(tag, devices) if health.ok else ev.BackendFailed(tag, self._unhealthy(health))

    async def changes(self) -> AsyncIterator[ev.HealthChanged]:
        """Yield every change of health that lasts, until the backend is abandoned."""
        checks = HealthFilter()
        while not self._backend.abandoned:
            await asyncio.sleep(checks.pause(self._interval))
            if (change := checks.observe(await self._check())) is not None:
                yield ev.HealthChanged(change.ok, change.detail)

    async def close(self) -> None:
        """Release the devices, within a bound."""
        await self._backend.close(_STOP_TIMEOUT)

    async def _check(self) -> Health:
        try:
            return await self._backend.check_health(self._device_timeout)
        except BringupError as error:
            return Health(ok=False, detail=str(error), permanent=self._backend.abandoned)

    def _unhealthy(self, health: Health) -> DeviceInitializationError:
        return DeviceInitializationError(
            f"the devices of client {self._client_id} came up, but are not healthy: {health.detail}",
            client_id=self._client_id,
            cause=health.detail,
        )
