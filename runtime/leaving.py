"""The event that tells that clients have begun to leave the job: `System.leaving`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from .client.client import Client
from .client.latch import first_set
from .machines.id_ranges import unpack_ids


class Leaving:
    """Set once any client, this one too, has begun to shut down, which the coordinator tells all at once.

    A service that serves requests with the help of all clients takes no more of them then, and shuts down itself.

    Args:
        client: of this process.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def client_ids(self) -> tuple[int, ...]:
        """The clients that are known to be leaving, or to have left."""
        peer = self._client.peer
        return () if peer is None else tuple(unpack_ids(peer.machine.leavers))

    def is_set(self) -> bool:
        """Return whether any client has begun to leave."""
        return bool(self.client_ids)

    async def wait(self) -> tuple[int, ...]:
        """Wait until a client begins to leave, and return which have. Cancelling is safe.

        Raises:
            PeerFailedError: the job has failed before.
        """
        assert self._client.peer is not None
        await first_set(self._client.peer.leaving, self._client.failed)
        if not self.is_set():
            raise self._client.end()
        return self.client_ids


class SyncLeaving:
    """See `Leaving`, for callers that block.

    Args:
        leaving: the event.
        run: runs the coroutine that a function makes to its end.
    """

    def __init__(
        self, leaving: Leaving, run: Callable[[Callable[[], Coroutine[None, None, tuple[int, ...]]]], tuple[int, ...]]
    ) -> None:
        self._leaving = leaving
        self._run = run

    @property
    def client_ids(self) -> tuple[int, ...]:
        """See `Leaving.client_ids`."""
        return self._leaving.client_ids

    def is_set(self) -> bool:
        """See `Leaving.is_set`."""
        return self._leaving.is_set()

    def wait(self, timeout: float | None = None) -> tuple[int, ...]:
        """See `Leaving.wait`; none are returned where `timeout`, in seconds, is over before."""

        async def wait() -> tuple[int, ...]:
            try:
                async with asyncio.timeout(timeout):
                    return await self._leaving.wait()
            except TimeoutError:
                return ()

        return self.client_ids or self._run(wait)
