"""The event that clients have begun to leave the job: `System.leaving`."""

from __future__ import annotations

from .client.client import Client
from .drivers.latch import first_set
from .machines.id_ranges import unpack_ids


class Leaving:
    """An event that is set once any client, this one too, has begun to shut down.

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
            raise self._client.end_error()
        return self.client_ids
