"""What a client and the child process of its isolated backend say to each other. Pure.

A frame is the number of its bytes, as four bytes in network order, and that many bytes of JSON. The client begins with
the backend it wants, and then asks one call at a time, by name; the child answers each, and the beginning, with either
a result or an error. Nothing is unpickled, and an answer is checked as if a stranger had sent it: the memory that it
comes from is that of native code.
"""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Iterator, Mapping
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
from ..answers import OddAnswerError, checked_devices, checked_discovery, checked_health, is_sound
from ..base import BackendConfig, CoreLocation, Discovery, Health, LocalDevice
from ..texts import clipped, said, shown, text_of

CALLS = ("discover", "start", "check_health", "stop")

FRAME_BYTES_MAX = 32 * 2**20
"""Enough for 65,536 devices with long names."""

_HEADER = struct.Struct("!I")
HEADER_BYTES = _HEADER.size

END = _HEADER.pack(0)
"""The last frame of the client, of no bytes: to close the pipe ends nothing where a forked copy has it open."""

_ODD = OddAnswerError.__name__
_DEVICE_ERRORS: Mapping[str, type[DeviceError]] = {
    kind.__name__: kind for kind in (DeviceNotFoundError, DeviceInitializationError, DeviceTimeoutError)
}


class MalformedFrameError(Exception):
    """What came is not what the other side says; the text says what it is."""


class ForeignError(Exception):
    """The code of the backend raised an exception that is none of bringup's.

    Attributes:
        cause: its type and text.
        at: the calls that it came through.
    """

    def __init__(self, cause: str, at: str) -> None:
        super().__init__(cause)
        self.cause = cause
        self.at = at


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


def plain(call: str, result: object) -> object:
    """Return what a call gave, made of what JSON has.

    Raises:
        OddAnswerError: it gave something that this call of a backend does not give.
    """
    match call:
        case "start":
            return [
                (device.kind, device.core_id, device.location, device.fingerprint) for device in checked_devices(result)
            ]
        case "check_health":
            return asdict(checked_health(result))
        case "discover":
            return asdict(checked_discovery(result))
    return None


def plain_config(config: BackendConfig) -> dict[str, object]:
    """Return what a backend may know, made of what JSON has."""
    values = {field.name: getattr(config, field.name) for field in fields(config) if field.compare}
    return {**values, "environment": dict(config.environment)}


def plain_error(error: BaseException, at: str = "") -> dict[str, object]:
    """Return an error, made of what JSON has; `at` says through which calls it came."""
    kind = type(error).__name__
    text, cause, client_id = text_of(error), "", None
    if isinstance(error, DeviceError) and kind in _DEVICE_ERRORS and is_sound(error):
        cause, client_id = clipped(error.cause), error.client_id
    elif isinstance(error, ConfigurationError) and is_sound(error):
        kind = ConfigurationError.__name__
    elif isinstance(error, OddAnswerError):
        kind = _ODD
    else:
        kind, text = "", clipped(said(error))
    return {"kind": kind, "text": text, "cause": cause, "client_id": client_id, "at": at}


def error_from(value: object) -> BringupError | OddAnswerError | ForeignError:
    """Return the error that the child raised.

    Raises:
        MalformedFrameError: it is none.
    """
    match value:
        case {
            "kind": str(kind),
            "text": str(text),
            "cause": str(cause),
            "client_id": int() | None as client_id,
            "at": str(at),
        }:
            if not kind:
                return ForeignError(text, at)
            if kind == _ODD:
                return OddAnswerError(text)
            if kind == ConfigurationError.__name__:
                return ConfigurationError(text)
            if (error := _DEVICE_ERRORS.get(kind)) is not None:
                return error(text, client_id=client_id, cause=cause)
    raise _malformed(value, "error")


def config_from(value: Any) -> BackendConfig:
    """Return what a backend may know of the job; the client sent it, so it is right."""
    ids = value["local_device_ids"]
    return BackendConfig(**{**value, "local_device_ids": None if ids is None else tuple(ids)})


def discovery_from(value: object) -> Discovery:
    """Return the result of `discover`.

    Raises:
        MalformedFrameError: it is none.
    """
    with _reading(value, "result of discover"):
        match value:
            case {"present": present, "detail": detail}:
                return checked_discovery(Discovery(present, detail))
    raise _malformed(value, "result of discover")


def health_from(value: object) -> Health:
    """Return the result of `check_health`.

    Raises:
        MalformedFrameError: it is none.
    """
    with _reading(value, "result of check_health"):
        match value:
            case {"ok": ok, "detail": detail, "permanent": permanent}:
                return checked_health(Health(ok, detail, permanent))
    raise _malformed(value, "result of check_health")


def devices_from(value: object) -> tuple[LocalDevice, ...]:
    """Return the result of `start`.

    Raises:
        MalformedFrameError: it is none.
    """
    if not isinstance(value, list):
        raise _malformed(value, "list of devices")
    with _reading(value, "list of devices"):
        return checked_devices([_device_from(each) for each in value])


def _device_from(value: Any) -> LocalDevice:
    match value:
        case [kind, core_id, None, fingerprint]:
            return LocalDevice(kind, core_id, None, fingerprint)
        case [kind, core_id, [x, y, z, core], fingerprint]:
            return LocalDevice(kind, core_id, CoreLocation(x, y, z, core), fingerprint)
    raise _malformed(value, "device")


@contextlib.contextmanager
def _reading(value: object, what: str) -> Iterator[None]:
    try:
        yield
    except OddAnswerError as odd:
        raise _malformed(value, f"{what}: {odd}") from None


def _malformed(value: object, what: str) -> MalformedFrameError:
    return MalformedFrameError(f"{shown(value)} is no {what}")
