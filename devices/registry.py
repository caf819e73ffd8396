"""The registry of backends, built in and offered by entry points."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from ..errors import BringupError, ConfigurationError, DeviceInitializationError, DeviceNotFoundError
from .base import BackendConfig, DeviceBackend
from .texts import said

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINT_GROUP = "bringup.backends"

# Type -> module of this package, class. Imported only when asked for: a backend may need a heavy library.
_BUILT_IN = {
    "CPU": ("cpu.backend", "CpuBackend"),
    "GPU": ("gpu.backend", "GpuBackend"),
    "JAX": ("jax.backend", "JaxBackend"),
    "SIM": ("sim.backend", "SimBackend"),
    "TPU": ("tpu.backend", "TpuBackend"),
}

# Names of the field that stay reserved for what they say, whether or not a backend is installed.
_WELL_KNOWN = ("TPU", "GPU", "JAX")

# What `None` looks for. SIM is missing on purpose: nobody may train on devices that do not exist by accident.
_PREFERENCE = ("TPU", "GPU", "CPU")

_CALLS = ("discover", "start", "check_health", "stop")

_log = logging.getLogger("bringup")


def type_name(device_type: str | None) -> str:
    """Return a device type in capitals; `preferred` for `None`."""
    return "preferred" if device_type is None else str(device_type).strip().upper()


def known_type(device_type: str | None) -> str:
    """Return the type of a built-in backend; empty for others, whose type is known once they are constructed."""
    name = type_name(device_type)
    return name if name in _BUILT_IN else ""


def offered_types() -> list[str]:
    """Return the types that installed distributions offer backends for, in capitals."""
    return [point.name.upper() for point in _entry_points()]


def create_backend(device_type: str | None, config: BackendConfig) -> DeviceBackend:
    """Construct the backend of a device type; nothing is brought up yet.

    Built-in types come first, then those that installed distributions offer through the entry-point group
    `bringup.backends` (a factory `(BackendConfig) -> DeviceBackend` under the name of the type).
    Importing and discovering may block, so an event loop should not call this for types that are not built in.

    Args:
        device_type: the type, in any case; `None` for the first of TPU, GPU and CPU that is present here.
        config: handed to the factory.

    Raises:
        ConfigurationError: an unknown type, an entry point that does not yield a backend, or wrong settings.
        DeviceNotFoundError: there is no backend of a well-known type, or no device for `None`.
        DeviceInitializationError: looking for devices failed.
    """
    if device_type is None:
        return _preferred(config)
    name = type_name(device_type)
    factory = _find_factory(name)
    if factory is None:
        raise _unknown(device_type, name, config)
    return factory(config)


def _find_factory(name: str) -> Callable[[BackendConfig], DeviceBackend] | None:
    if name in _BUILT_IN:
        module, attribute = _BUILT_IN[name]
        loaded = getattr(importlib.import_module(f".{module}", __package__), attribute)
        return cast("Callable[[BackendConfig], DeviceBackend]", loaded)
    offers = {point.value: point for point in _entry_points() if point.name.upper() == name}
    if len(offers) > 1:
        described = " and ".join(_describe(point) for point in offers.values())
        raise ConfigurationError(f"device_type={name!r} is offered more than once: {described}. Uninstall all but one.")
    for point in offers.values():
        return lambda config: _load(point, name, config)
    return None


def _preferred(config: BackendConfig) -> DeviceBackend:
    looked: list[str] = []
    for name in _PREFERENCE:
        factory = _find_factory(name)
        if factory is None:
            looked.append(f"{name}: no backend installed")
            continue
        backend = factory(config)
        try:
            discovery = backend.discover()
        except BringupError:
            raise
        except Exception as error:
            cause = said(error)
            raise DeviceInitializationError(
                f"client {config.client_id}: looking for {name} devices failed: {cause}. "
                "Mend that, or say which device_type to use.",
                client_id=config.client_id,
                cause=cause,
            ) from error
        looked.append(f"{name}: {discovery.detail}")
        if discovery.present:
            _log.info("device type %s: %s", name, "; ".join(looked))
            return backend
    raise DeviceNotFoundError(
        f"client {config.client_id} has no device of a preferred type ({'; '.join(looked)}). "
        "Say which device_type to use.",
        client_id=config.client_id,
    )


def _unknown(given: str, name: str, config: BackendConfig) -> BringupError:
    found = [_describe(point) for point in _entry_points()]
    lacking = [well_known for well_known in _WELL_KNOWN if well_known not in _BUILT_IN]
    known = (
        f"built in: {', '.join(_BUILT_IN)}; offered by installed distributions ({ENTRY_POINT_GROUP}): "
        f"{', '.join(found) or 'none'}"
    )
    if name in _WELL_KNOWN:
        return DeviceNotFoundError(
            f"device_type={given!r} on client {config.client_id}: this version of bringup has no {name} backend "
            f"({known}). Install a distribution that offers {name}, or use one of these.",
            client_id=config.client_id,
            cause=f"no {name} backend",
        )
    return ConfigurationError(
        f"device_type={given!r} is not known ({known}; well known, without a backend here: "
        f"{', '.join(lacking) or 'none'}). Use one of these, or install the distribution that offers it."
    )


def _entry_points() -> list[EntryPoint]:
    # Imported here: it takes 30 ms that a job on built-in devices does not need.
    from importlib.metadata import entry_points

    return sorted(entry_points(group=ENTRY_POINT_GROUP))


def _describe(point: EntryPoint) -> str:
    origin = f" from {point.dist.name} {point.dist.version}" if point.dist else ""
    return f"{point.name} = {point.value}{origin}"


def _load(point: EntryPoint, name: str, config: BackendConfig) -> DeviceBackend:
    try:
        backend = point.load()(config)
        cause = _defect(backend, name)
    except BringupError:
        raise
    except (Exception, SystemExit) as error:
        raise _broken(point, said(error)) from error
    if cause:
        raise _broken(point, cause)
    return cast("DeviceBackend", backend)


def _defect(backend: object, name: str) -> str:
    """Return what keeps an object from being a backend of this type, or nothing."""
    kind = type(backend).__name__
    missing = [call for call in _CALLS if not callable(getattr(backend, call, None))]
    if missing:
        return f"it gave a {kind} without {', '.join(missing)}"
    if not isinstance(getattr(backend, "simulated", None), bool):
        return f"the `simulated` of its {kind} is not a bool"
    device_type = getattr(backend, "device_type", None)
    if device_type != name:
        return f"the `device_type` of its {kind} is {device_type!r}, not {name!r}"
    return ""


def _broken(point: EntryPoint, cause: str) -> ConfigurationError:
    return ConfigurationError(
        f"the entry point {_describe(point)} of group {ENTRY_POINT_GROUP} does not yield a backend: {cause}. "
        "Mend or uninstall that distribution, or use another device_type."
    )
