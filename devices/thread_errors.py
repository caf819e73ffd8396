"""The errors of a backend's thread: each says whose backend it is, and what to do."""

from __future__ import annotations

import platform

from ..errors import BringupError, DeviceError, DeviceInitializationError, DeviceTimeoutError

__all__ = ["ThreadErrors"]


class ThreadErrors:
    """Makes the errors of one backend's thread.

    Args:
        device_type: the backend's type.
        client_id: the client that the devices belong to, or `None` before it is known.
        thread_name: the name of the thread.
    """

    def __init__(self, device_type: str, client_id: int | None, thread_name: str) -> None:
        client = "" if client_id is None else f" of client {client_id}"
        self.owner = f"the {device_type} backend{client} on host {platform.node()}"
        self._client_id = client_id
        self._thread_name = thread_name

    def failed(self, reason: str) -> DeviceInitializationError:
        """Return the error for a call that was not made."""
        return DeviceInitializationError(f"{self.owner}: {reason}.", client_id=self._client_id, cause=reason)

    def abandoned(self, reason: str, at: str = "") -> DeviceTimeoutError:
        """Return the error for a call that did not return in time, or that came after such a one.

        `at` says where the thread was, if that is known.
        """
        message = (
            f"{self.owner}: {reason}; its thread {self._thread_name} was abandoned{at and f' in {at}'}. "
            "Check the devices of that host, or give them more time with device_timeout."
        )
        return DeviceTimeoutError(message, client_id=self._client_id, cause=reason)

    def raised(self, what: str, error: BaseException) -> BringupError:
        """Return the error for what a backend raised: its own, if it is one of bringup's."""
        if isinstance(error, BringupError):
            if isinstance(error, DeviceError) and error.client_id is None:
                error.client_id = self._client_id
            return error
        cause = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        message = f"{self.owner}: {what} raised {cause}. Check the devices of that host and their driver."
        failure = DeviceInitializationError(message, client_id=self._client_id, cause=cause)
        failure.__cause__ = error
        return failure
