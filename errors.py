"""Every exception that bringup raises, in one hierarchy::

    BringupError
    ├── ConfigurationError (ValueError)        a setting is wrong: which, its value, where it came from
    ├── AlreadyInitializedError (RuntimeError) this process has an active system
    ├── NotInitializedError (RuntimeError)     this process has none
    ├── RendezvousTimeoutError (TimeoutError)  the job did not come up in time: who is missing
    ├── RegistrationRefusedError               the coordinator refused this client: both sides' values
    ├── AuthenticationError                    the other side could not prove that it belongs to this job
    ├── DeviceError
    │   ├── DeviceNotFoundError                no device of that type: what was looked for, and where
    │   ├── DeviceInitializationError          a backend failed
    │   ├── DeviceTimeoutError (TimeoutError)  a backend did not return in time
    │   └── DeviceFailedError (PeerFailedError) devices became unhealthy in a running job that is to end then
    ├── TopologyError                          duplicate core ids, holes, disagreement between clients
    ├── PeerFailedError (ConnectionError)      another client failed: who, in which phase, how it was found out
    │   └── CoordinatorLostError               the client that hosts the coordinator failed
    ├── BarrierTimeoutError (TimeoutError)     who did not come
    ├── KeyNotFoundError (KeyError)
    │   └── KeyTimeoutError (TimeoutError)     a `get` that waited in vain
    ├── KeyExistsError
    └── CollectiveMismatchError (ValueError)   clients called different collectives: who called what

A message says what happened, to whom, the offending value and where it came from, and what to do next.
Attributes hold the same facts for programs.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "AlreadyInitializedError",
    "AuthenticationError",
    "BarrierTimeoutError",
    "BringupError",
    "CollectiveMismatchError",
    "ConfigurationError",
    "CoordinatorLostError",
    "DeviceError",
    "DeviceFailedError",
    "DeviceInitializationError",
    "DeviceNotFoundError",
    "DeviceTimeoutError",
    "KeyExistsError",
    "KeyNotFoundError",
    "KeyTimeoutError",
    "NotInitializedError",
    "PeerFailedError",
    "RegistrationRefusedError",
    "RendezvousTimeoutError",
    "TopologyError",
]


class BringupError(Exception):
    """Root of all exceptions of bringup."""


class ConfigurationError(BringupError, ValueError):
    """A setting is wrong. The message names the variable or argument, and its value."""


class AlreadyInitializedError(BringupError, RuntimeError):
    """This process already has an active system; `shutdown()` it first, or pass `reset=True`."""


class NotInitializedError(BringupError, RuntimeError):
    """This process has no active system; call `initialize()` first."""


class RendezvousTimeoutError(BringupError, TimeoutError):
    """The job did not come up within `initialization_timeout`.

    Attributes:
        missing: the clients waited for, client id to address.
        present: the clients that had come, client id to address.
    """

    def __init__(
        self, message: str = "", *, missing: Mapping[int, str] | None = None, present: Mapping[int, str] | None = None
    ) -> None:
        super().__init__(message)
        self.missing: dict[int, str] = dict(missing or {})
        self.present: dict[int, str] = dict(present or {})


class RegistrationRefusedError(BringupError):
    """The coordinator refused this client.

    Attributes:
        field: what differs (`client_id`, `num_clients`, `job_name`, `protocol_version`, `incarnation`, `job_id`).
        ours: this client's value, as text.
        theirs: the coordinator's value, as text.
    """

    def __init__(self, message: str = "", *, field: str = "", ours: str = "", theirs: str = "") -> None:
        super().__init__(message)
        self.field = field
        self.ours = ours
        self.theirs = theirs


class AuthenticationError(BringupError):
    """The other side could not prove that it belongs to this job."""


class DeviceError(BringupError):
    """A device or its backend failed.

    Attributes:
        client_id: the client whose device it is; `None` before ids are known.
        cause: what the backend said.
    """

    def __init__(self, message: str = "", *, client_id: int | None = None, cause: str = "") -> None:
        super().__init__(message)
        self.client_id = client_id
        self.cause = cause


class DeviceNotFoundError(DeviceError):
    """There is no device of the type asked for. The message says what was looked for, and where."""


class DeviceInitializationError(DeviceError):
    """A backend could not bring its devices up."""


class DeviceTimeoutError(DeviceError, TimeoutError):
    """A backend call did not return within `device_timeout`; its thread was abandoned."""


class TopologyError(BringupError):
    """The merged table of devices is not usable: duplicate core ids, holes, or clients that disagree."""


class PeerFailedError(BringupError, ConnectionError):
    """Another client failed, so the job cannot go on.

    Attributes:
        client_id: who failed first.
        address: its address.
        host: its host name, empty where it never said it.
        phase: the phase it was last known to be in.
        cause: "process died", "no heartbeat for 10.0 s", ...
    """

    def __init__(
        self,
        message: str = "",
        *,
        client_id: int | None = None,
        address: str = "",
        host: str = "",
        phase: str = "",
        cause: str = "",
    ) -> None:
        super().__init__(message)
        self.client_id = client_id
        self.address = address
        self.host = host
        self.phase = phase
        self.cause = cause


class DeviceFailedError(DeviceError, PeerFailedError):
    """A client's devices became unhealthy while the job ran, with `unhealthy_action="fail"`: raised on every client.

    It is a `DeviceError` and a `PeerFailedError`, with the attributes of both; `cause` is what the health check found.
    """

    def __init__(
        self,
        message: str = "",
        *,
        client_id: int | None = None,
        address: str = "",
        host: str = "",
        phase: str = "",
        cause: str = "",
    ) -> None:
        PeerFailedError.__init__(
            self, message, client_id=client_id, address=address, host=host, phase=phase, cause=cause
        )


class CoordinatorLostError(PeerFailedError):
    """Client 0, which hosts the coordinator, failed or became unreachable."""


class BarrierTimeoutError(BringupError, TimeoutError):
    """Not all clients reached a barrier in time.

    Attributes:
        missing: the clients that did not come, client id to address.
    """

    def __init__(self, message: str = "", *, missing: Mapping[int, str] | None = None) -> None:
        super().__init__(message)
        self.missing: dict[int, str] = dict(missing or {})


class KeyNotFoundError(BringupError, KeyError):
    """No such key in the job's key-value store."""

    def __str__(self) -> str:  # KeyError shows the repr of its argument
        return str(self.args[0]) if self.args else ""


class KeyTimeoutError(KeyNotFoundError, TimeoutError):
    """A `get` waited in vain: the key was not set in time, or there was no answer."""


class KeyExistsError(BringupError):
    """The key is already set, and `overwrite` was not asked for."""


class CollectiveMismatchError(BringupError, ValueError):
    """Clients called different collectives, or the same one with another shape, dtype or operation."""
