"""Bring up the accelerators of a multi-client job, in one awaitable call::

    system = await bringup.initialize()

The names below are loaded when they are first used, so that `import bringup` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import sync as sync
    from .devices.base import BackendConfig as BackendConfig
    from .devices.base import CoreLocation as CoreLocation
    from .devices.base import DeviceBackend as DeviceBackend
    from .devices.base import Discovery as Discovery
    from .devices.base import Health as Health
    from .devices.base import LocalDevice as LocalDevice
    from .devices.topology.mesh import Mesh as Mesh
    from .devices.topology.topology import Topology as Topology
    from .errors import AlreadyInitializedError as AlreadyInitializedError
    from .errors import AuthenticationError as AuthenticationError
    from .errors import BarrierTimeoutError as BarrierTimeoutError
    from .errors import BringupError as BringupError
    from .errors import CollectiveMismatchError as CollectiveMismatchError
    from .errors import ConfigurationError as ConfigurationError
    from .errors import CoordinatorLostError as CoordinatorLostError
    from .errors import DeviceError as DeviceError
    from .errors import DeviceFailedError as DeviceFailedError
    from .errors import DeviceInitializationError as DeviceInitializationError
    from .errors import DeviceNotFoundError as DeviceNotFoundError
    from .errors import DeviceTimeoutError as DeviceTimeoutError
    from .errors import KeyExistsError as KeyExistsError
    from .errors import KeyNotFoundError as KeyNotFoundError
    from .errors import KeyTimeoutError as KeyTimeoutError
    from .errors import NotInitializedError as NotInitializedError
    from .errors import PeerFailedError as PeerFailedError
    from .errors import RegistrationRefusedError as RegistrationRefusedError
    from .errors import RendezvousTimeoutError as RendezvousTimeoutError
    from .errors import TopologyError as TopologyError
    from .resolvers.base import ClusterJob as ClusterJob
    from .resolvers.base import ClusterResolver as ClusterResolver
    from .resolvers.base import Detection as Detection
    from .runtime.configuration.options import Options as Options
    from .runtime.initialize import initialize as initialize
    from .runtime.initialize import preferred_device_type as preferred_device_type
    from .runtime.system import System as System
    from .runtime.system import current as current
    from .runtime.types import Device as Device
    from .runtime.types import KeyChange as KeyChange
    from .runtime.types import Member as Member
    from .runtime.types import Span as Span

__version__ = "0.1.0"

_HOMES = {
    "errors": (
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
    ),
    "devices.base": ("BackendConfig", "CoreLocation", "DeviceBackend", "Discovery", "Health", "LocalDevice"),
    "resolvers.base": ("ClusterJob", "ClusterResolver", "Detection"),
    "runtime.initialize": ("initialize", "preferred_device_type"),
    "runtime.configuration.options": ("Options",),
    "runtime.types": ("Device", "KeyChange", "Member", "Span"),
    "runtime.system": ("System", "current"),
    "devices.topology.mesh": ("Mesh",),
    "devices.topology.topology": ("Topology",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = ("errors", "sync", "testing")

__all__ = ["__version__", "sync", *_HOME_OF]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if (home := _HOME_OF.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f".{home}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF, *_MODULES})
