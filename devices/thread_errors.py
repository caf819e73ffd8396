"""The errors of a backend's thread: each says whose backend it is, and what to do."""

from __future__ import annotations

import platform

from ..errors import BringupError, DeviceError, DeviceInitializationError, DeviceTimeoutError
from .answers import OddAnswerError, is_sound
from .texts import said, text_of
from .thread_stack import raised_at


class ThreadErrors:
    """Makes the errors of one backend.

    Args:
        device_type: the backend's type.
        client_id: the client that the devices belong to, or `None` before it is known.
        thread_name: the name of its thread.
        process: what more is to be said of whose backend it is.
    """

    def __init__(self, device_type: str, client_id: int | None, thread_name: str = "", process: str = "") -> None:
        client = "" if client_id is None else f" of client {client_id}"
        self.owner = f"the {device_type} backend{client} on host {platform.node()}{process}"
        self._client_id = client_id
        self._thread_name = thread_name

    def failed(self, reason: str) -> DeviceInitializationError:
        """Return the error for a call that was not made."""
        return self._made(f"{self.owner}: {reason}.", reason)

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
        if isinstance(error, OddAnswerError):
            failure = self.odd(what, text_of(error))
        elif isinstance(error, BringupError) and is_sound(error):
            if isinstance(error, DeviceError) and error.client_id is None:
                error.client_id = self._client_id
            return error
        else:
            failure = self.foreign(what, said(error), raised_at(error))
        failure.__cause__ = error
        return failure

    def odd(self, what: str, returned: str) -> DeviceInitializationError:
        """Return the error for a call that returned what it must not."""
        cause = f"{what} returned {returned}"
        return self._made(
            f"{self.owner}: {cause}. The backend is broken: this is for whoever wrote it to mend.",
            cause,
        )

    def foreign(self, what: str, cause: str, at: str) -> DeviceInitializationError:
        """Return the error for what the code of a backend raised that is no error of bringup's."""
        where = f" in the backend's code, {at}" if at else " in the backend's code"
        return self._made(
            f"{self.owner}: {what} raised {cause},{where}. Look for a defect there, or of the devices of that host and "
            "their driver.",
            cause,
        )

    def _made(self, message: str, cause: str) -> DeviceInitializationError:
        return DeviceInitializationError(message, client_id=self._client_id, cause=cause)
