"""The errors of one backend, in its thread or in a process of its own: each names the backend, its client and host."""

from __future__ import annotations

import platform

from ..errors import BringupError, DeviceError, DeviceInitializationError, DeviceTimeoutError
from .answers import OddAnswerError, is_sound
from .texts import said, text_of
from .thread_stack import stack_of_error


class BackendErrors:
    """Makes the errors of one backend.

    Args:
        device_type: the type of the backend; it may be changed once that is known.
        client_id: the client that the devices belong to, or `None` before it is known.
        thread_name: the name of its thread, if it has one.
        process: an addition to the name of the backend, for one in a process of its own.
    """

    def __init__(self, device_type: str, client_id: int | None, thread_name: str = "", process: str = "") -> None:
        self.device_type = device_type
        self._client_id = client_id
        self._thread_name = thread_name
        self._process = process

    @property
    def owner(self) -> str:
        """The backend as errors and logs name it."""
        client = "" if self._client_id is None else f" of client {self._client_id}"
        return f"the {self.device_type} backend{client} on host {platform.node()}{self._process}"

    def failed(self, reason: str) -> DeviceInitializationError:
        """Return the error for a call that was not made."""
        return self._made(f"{self.owner}: {reason}.", reason)

    def abandoned(self, reason: str, at: str = "") -> DeviceTimeoutError:
        """Return the error for a call that did not return in time, or for one after it.

        `at` is the stack of the thread, if known.
        """
        message = (
            f"{self.owner}: {reason}; its thread {self._thread_name} was abandoned{at and f' in {at}'}. "
            "Check the devices of that host, or give them more time with device_timeout."
        )
        return DeviceTimeoutError(message, client_id=self._client_id, cause=reason)

    def raised(self, call: str, error: BaseException) -> BringupError:
        """Return the error for an exception of a backend: the same, if it is one of bringup's."""
        try:
            return self._raised(call, error)
        except Exception:  # noqa: BLE001 - an exception may be of any class: the caller gets an error in any case
            return self.failed(f"{call} raised an exception that cannot be described")

    def _raised(self, call: str, error: BaseException) -> BringupError:
        if isinstance(error, OddAnswerError):
            failure = self.odd(call, text_of(error))
        elif isinstance(error, BringupError) and is_sound(error):
            if isinstance(error, DeviceError) and error.client_id is None:
                error.client_id = self._client_id
            return error
        else:
            failure = self.foreign(call, said(error), stack_of_error(error))
        failure.__cause__ = error
        return failure

    def odd(self, call: str, returned: str) -> DeviceInitializationError:
        """Return the error for a call with a result that the port does not allow."""
        cause = f"{call} returned {returned}"
        return self._made(
            f"{self.owner}: {cause}. The backend is broken: this is for whoever wrote it to mend.",
            cause,
        )

    def foreign(self, call: str, cause: str, at: str) -> DeviceInitializationError:
        """Return the error for an exception of the backend's code that is none of bringup's."""
        where = f" in the backend's code, {at}" if at else " in the backend's code"
        return self._made(
            f"{self.owner}: {call} raised {cause},{where}. Look for a defect there, or of the devices of that host and "
            "their driver.",
            cause,
        )

    def _made(self, message: str, cause: str) -> DeviceInitializationError:
        return DeviceInitializationError(message, client_id=self._client_id, cause=cause)
