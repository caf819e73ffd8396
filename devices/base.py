"""The port of device backends: its protocols and records."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import NamedTuple, Protocol, runtime_checkable


class CoreLocation(NamedTuple):
    """The location of a core: the coordinates of its chip, and its index on the chip."""

    x: int
    y: int
    z: int
    core: int


@dataclass(frozen=True, slots=True)
class LocalDevice:
    """A device (core) that a backend brought up.

    Attributes:
        kind: the field's name for the model, e.g. `cpu`, `TPU v4`. What cannot be printed in it becomes `?`.
        core_id: the id the hardware gave, unique in the job, int32; `None` where the hardware has none:
            the merge then assigns the device its position in the job.
        location: physical coordinates, or `None` where the device has none.
        fingerprint: what tells this piece of hardware from all others, on this host and elsewhere, such as the UUID of
            a GPU. Two clients of a job that give the same are refused. Devices of one client may have the same, as the
            cores of a chip do. Empty where nothing does: then it goes unnoticed where clients share the device.
    """

    kind: str
    core_id: int | None = None
    location: CoreLocation | None = None
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Discovery:
    """The result of a cheap search for devices.

    Attributes:
        present: whether there is at least one device of this type.
        detail: what was looked at and what was found, for errors.
    """

    present: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Health:
    """The result of one health check.

    Attributes:
        ok: whether all devices are well.
        detail: what is wrong where `ok` is false; else what is worth a word, if anything.
        permanent: what is wrong cannot pass by itself, as where a device is gone: no further check needs to confirm it.
    """

    ok: bool
    detail: str = ""
    permanent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendConfig:
    """The facts of a job that a backend may use.

    Attributes:
        client_id: this client.
        num_clients: how many clients the job has.
        local_client_id: this client's number among those of its host, as their launcher says; `None` where unknown.
        num_local_clients: how many these are. They are to divide the accelerators that all of them see
            unless `local_device_ids` or a variable says which are this client's.
        local_device_ids: bring up only these, by local index; `None` for all.
        num_logical_cpu_devices: logical CPU devices asked for, or `None`.
        enable_megacore: whether the two cores of a chip act as one device.
        environment: the process environment as it was when the job was resolved. Backends read their own
            settings here (`BRINGUP_SIM_*`), never in `os.environ`.
        import_module: imports a large package that the user's program imports as well, such as jax: two threads that
            begin with it at the same time may each get a part of it that is half made.
    """

    client_id: int = 0
    num_clients: int = 1
    local_client_id: int | None = None
    num_local_clients: int | None = None
    local_device_ids: tuple[int, ...] | None = None
    num_logical_cpu_devices: int | None = None
    enable_megacore: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    import_module: Callable[[str], ModuleType] = field(default=importlib.import_module, repr=False, compare=False)


class DeviceBackend(Protocol):
    """Brings up one type of device. Made by a factory `(BackendConfig) -> DeviceBackend`.

    A distribution offers a backend through the entry-point group `bringup.backends`, under the name of its type:
    the entry point is the factory, a class will do. Making a backend checks settings and does nothing else.

    All methods block and are called one at a time, from one daemon thread that belongs to this backend alone, never
    from an event loop. A call has a deadline (`device_timeout`): one that does not return in time is reported and
    abandoned with its thread, and if it returns after all, `stop` follows. Methods raise `DeviceError`s; anything else
    they raise is reported as `DeviceInitializationError`. `start` is called at most once; `stop` may be called after a
    failed `start` and must be idempotent. `check_health` is called every `health_interval`.

    A backend may run in a child process of its own (`isolate_backend`), with the same calls from the same thread. Its
    devices are then the child's: what it holds (memory, contexts, locks) is not the client process's.

    A backend that can cut a long call short is `Interruptible` as well.
    """

    @property
    def device_type(self) -> str:
        """`CPU`, `GPU`, `TPU`, ...: the name it is registered under."""
        ...

    @property
    def simulated(self) -> bool:
        """True for devices that do not exist: the system's repr and JSON say so."""
        ...

    def discover(self) -> Discovery:
        """Look for devices: cheap, and without side effects on them."""
        ...

    def start(self) -> Sequence[LocalDevice]:
        """Bring the devices up, and return them by local index.

        Raises:
            DeviceNotFoundError: there is none of this type.
            DeviceInitializationError: one did not come up.
            ConfigurationError: the settings make no sense together.
        """
        ...

    def check_health(self) -> Health:
        """Check the devices that `start` brought up."""
        ...

    def stop(self) -> None:
        """Release the devices."""
        ...


@runtime_checkable
class Interruptible(Protocol):
    """A backend that can cut a long call short."""

    def interrupt(self) -> None:
        """Make the running call return or raise soon. Called from another thread, never blocks, may come too late."""
        ...


@runtime_checkable
class Openable(Protocol):
    """A backend whose construction may block. `open` comes before all other calls."""

    def open(self) -> None:
        """Construct the backend: from then on `device_type` and `simulated` are right.

        Raises:
            BringupError: as the factory of the backend does.
        """
        ...
