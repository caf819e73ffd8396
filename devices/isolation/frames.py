"""What a client and the child process of its isolated backend say to each other. Pure.

A frame is the number of its bytes, as four bytes in network order, and that many bytes of JSON. The client begins with
the backend it wants, and then asks one call at a time, by name; the child answers each, and the beginning, with either
a result or an error. Nothing is unpickled, and an answer is checked as if a stranger had sent it: the memory that it
comes from is that of native code.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from ...errors import (
    BringupError,
    ConfigurationError,
    DeviceError,
    DeviceInitializationError,
    DeviceNotFoundError,
    DeviceTimeoutError,
)
from ..base import BackendConfig, CoreLocation, Discovery, Health, LocalDevice

__all__ = [
    "CALLS",
    "FRAME_BYTES_MAX",
    "HEADER_BYTES",
    "MalformedFrameError",
    "config_from",
    "devices_from",
    "discovery_from",
    "error_from",
    "frame_of",
    "health_from",
    "message_of",
    "plain",
    "plain_config",
    "plain_error",
    "size_of",
]

CALLS = ("discover", "start", "check_health", "stop")

FRAME_BYTES_MAX = 32 * 2**20
"""Enough for 65,536 devices with long names."""

_HEADER = struct.Struct("!I")
HEADER_BYTES = _HEADER.size

_TEXT_MAX = 16_384
_DEVICE_ERRORS: Mapping[str, type[DeviceError]] = {
    kind.__name__: kind for kind in (DeviceNotFoundError, DeviceInitializationError, DeviceTimeoutError)
}


class MalformedFrameError(Exception):
    """What came is not what the other side says; the text says what it is."""


def frame_of(message: object) -> bytes:
    """Return a message as it travels."""
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) > FRAME_BYTES_MAX:
        raise MalformedFrameError(f"a frame of {len(body)} bytes, more than {FRAME_BYTES_MAX}")
    return _HEADER.pack(len(body)) + body


def size_of(header: bytes) -> int:
    """Return how many bytes follow a header.

    Raises:
        MalformedFrameError: more than a frame may have.
    """
    (size,) = _HEADER.unpack(header)
    if size > FRAME_BYTES_MAX:
        raise MalformedFrameError(f"a frame of {size} bytes, more than {FRAME_BYTES_MAX} (it began with {header!r})")
    return int(size)


def message_of(body: bytes) -> dict[str, Any]:
    """Return the message of a frame's body.

    Raises:
        MalformedFrameError: it is not a JSON object.
    """
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        raise MalformedFrameError(f"{body[:80]!r} is not JSON") from None
    if not isinstance(message, dict):
        raise MalformedFrameError(f"{body[:80]!r} is not a JSON object")
    return message


def plain(result: object) -> object:
    """Return what a call gave, made of what JSON has.

    Raises:
        TypeError: it gave something that no call of a backend gives.
    """
    match result:
        case None:
            return None
        case Discovery() | Health():
            return asdict(result)
        case Sequence() if all(isinstance(device, LocalDevice) for device in result):
            return [(device.kind, device.core_id, device.location, device.fingerprint) for device in result]
    raise TypeError(f"it returned {result!r}")


def plain_config(config: BackendConfig) -> dict[str, object]:
    """Return what a backend may know, made of what JSON has."""
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    return {**values, "environment": dict(config.environment)}


def plain_error(error: BaseException) -> dict[str, object]:
    """Return an error, made of what JSON has."""
    kind = type(error).__name__
    cause, client_id = "", None
    if isinstance(error, DeviceError) and kind in _DEVICE_ERRORS:
        text, cause, client_id = str(error), error.cause[:_TEXT_MAX], error.client_id
    elif isinstance(error, ConfigurationError):
        kind, text = ConfigurationError.__name__, str(error)
    else:
        kind, text = "", f"{kind}: {error}" if str(error) else kind
    return {"kind": kind, "text": text[:_TEXT_MAX], "cause": cause, "client_id": client_id}


def error_from(value: object) -> BringupError | str:
    """Return the error that the child raised; of an error that is not bringup's, its type and text.

    Raises:
        MalformedFrameError: it is none.
    """
    match value:
        case {"kind": str(kind), "text": str(text), "cause": str(cause), "client_id": int() | None as client_id}:
            if not kind:
                return text
            if kind == ConfigurationError.__name__:
                return ConfigurationError(text)
            if (error := _DEVICE_ERRORS.get(kind)) is not None:
                return error(text, client_id=client_id, cause=cause)
    raise MalformedFrameError(f"{str(value)[:80]!r} is no error")


def config_from(value: Any) -> BackendConfig:
    """Return what a backend may know of the job; the client sent it, so it is right."""
    ids = value["local_device_ids"]
    return BackendConfig(**{**value, "local_device_ids": None if ids is None else tuple(ids)})


def discovery_from(value: object) -> Discovery:
    """Return the result of `discover`.

    Raises:
        MalformedFrameError: it is none.
    """
    match value:
        case {"present": bool(present), "detail": str(detail)}:
            return Discovery(present, detail)
    raise MalformedFrameError(f"{str(value)[:80]!r} is no result of discover")


def health_from(value: object) -> Health:
    """Return the result of `check_health`.

    Raises:
        MalformedFrameError: it is none.
    """
    match value:
        case {"ok": bool(ok), "detail": str(detail), "permanent": bool(permanent)}:
            return Health(ok, detail, permanent)
    raise MalformedFrameError(f"{str(value)[:80]!r} is no result of check_health")


def devices_from(value: object) -> tuple[LocalDevice, ...]:
    """Return the result of `start`.

    Raises:
        MalformedFrameError: it is none.
    """
    if not isinstance(value, list):
        raise MalformedFrameError(f"{str(value)[:80]!r} is no list of devices")
    return tuple(map(_device_from, value))


def _device_from(value: object) -> LocalDevice:
    match value:
        case [str(kind), int() | None as core_id, location, str(fingerprint)] if not isinstance(core_id, bool):
            return LocalDevice(kind, core_id, _location_from(location), fingerprint)
    raise MalformedFrameError(f"{str(value)[:80]!r} is no device")


def _location_from(value: object) -> CoreLocation | None:
    match value:
        case None:
            return None
        case [int(x), int(y), int(z), int(core)]:
            return CoreLocation(x, y, z, core)
    raise MalformedFrameError(f"{str(value)[:80]!r} is no location")
