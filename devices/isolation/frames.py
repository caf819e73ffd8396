"""The messages between a client and the child process of its isolated backend, as frames of JSON. Pure.

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

import msgspec

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

PIPE_FRAME_BYTES_MAX = 32 * 2**20
"""Enough for 65,536 devices with long names."""

_HEADER = struct.Struct("!I")
HEADER_BYTES = _HEADER.size

END = _HEADER.pack(0)
"""The last frame of the client, of no bytes: to close the pipe ends nothing where a forked copy has it open."""

_ODD = OddAnswerError.__name__
_DEVICE_ERRORS: Mapping[str, type[DeviceError]] = {
    kind.__name__: kind for kind in (DeviceNotFoundError, DeviceInitializationError, DeviceTimeoutError)
}

_Device = tuple[str, int | None, CoreLocation | None, str]
"""Kind, core id, location and fingerprint."""


class _Error(msgspec.Struct):
    kind: str
    text: str
    cause: str
    client_id: int | None
    at: str


class _Identity(msgspec.Struct):
    device_type: str
    simulated: bool


class MalformedPipeFrameError(Exception):
    """A frame with unexpected content, which the text shows."""


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
    """Return the frame of a message."""
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) > PIPE_FRAME_BYTES_MAX:
        raise MalformedPipeFrameError(f"a frame of {len(body)} bytes, more than {PIPE_FRAME_BYTES_MAX}")
    return _HEADER.pack(len(body)) + body


def size_of(header: bytes) -> int:
    """Return how many bytes follow a header.

    Raises:
        MalformedPipeFrameError: more than a frame may have.
    """
    (size,) = _HEADER.unpack(header)
    if size > PIPE_FRAME_BYTES_MAX:
        raise MalformedPipeFrameError(
            f"a frame of {size} bytes, more than {PIPE_FRAME_BYTES_MAX} (it began with {header!r})"
        )
    return int(size)


def message_of(body: bytes) -> dict[str, Any]:
    """Return the message of a frame's body.

    Raises:
        MalformedPipeFrameError: it is not a JSON object.
    """
    try:
        # Not by msgspec: it refuses lone surrogates, which texts of an operating system may hold.
        message = json.loads(body)
    except (ValueError, RecursionError):
        raise MalformedPipeFrameError(f"{body[:80]!r} is not JSON") from None
    if not isinstance(message, dict):
        raise MalformedPipeFrameError(f"{body[:80]!r} is not a JSON object")
    return message


def plain(call: str, result: object) -> object:
    """Return the result of a call as JSON values.

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
    """Return a configuration as JSON values."""
    values = {field.name: getattr(config, field.name) for field in fields(config) if field.compare}
    return {**values, "environment": dict(config.environment)}


def plain_error(error: BaseException, at: str = "") -> dict[str, object]:
    """Return an error as JSON values; `at` is the stack that it came through."""
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
        MalformedPipeFrameError: it is none.
    """
    told = _typed(value, _Error, "error")
    if not told.kind:
        return ForeignError(told.text, told.at)
    if told.kind == _ODD:
        return OddAnswerError(told.text)
    if told.kind == ConfigurationError.__name__:
        return ConfigurationError(told.text)
    if (error := _DEVICE_ERRORS.get(told.kind)) is not None:
        return error(told.text, client_id=told.client_id, cause=told.cause)
    raise MalformedPipeFrameError(f"{shown(value)} is no error: nothing of that kind is raised")


def identity_from(value: object) -> tuple[str, bool]:
    """Return the device type of the backend, and whether it is simulated.

    Raises:
        MalformedPipeFrameError: it is not said.
    """
    made = _typed(value, _Identity, "identity of a backend")
    return made.device_type, made.simulated


def config_from(value: Any) -> BackendConfig:
    """Return the configuration that the client sent, which needs no check."""
    ids = value["local_device_ids"]
    return BackendConfig(**{**value, "local_device_ids": None if ids is None else tuple(ids)})


def discovery_from(value: object) -> Discovery:
    """Return the result of `discover`.

    Raises:
        MalformedPipeFrameError: it is none.
    """
    with _reading(value, "result of discover"):
        return checked_discovery(_typed(value, Discovery, "result of discover"))


def health_from(value: object) -> Health:
    """Return the result of `check_health`.

    Raises:
        MalformedPipeFrameError: it is none.
    """
    with _reading(value, "result of check_health"):
        return checked_health(_typed(value, Health, "result of check_health"))


def devices_from(value: object) -> tuple[LocalDevice, ...]:
    """Return the result of `start`.

    Raises:
        MalformedPipeFrameError: it is none.
    """
    with _reading(value, "list of devices"):
        devices = _typed(value, list[_Device], "list of devices")
        return checked_devices([LocalDevice(*fields) for fields in devices])


def _typed(value: object, kind: Any, what: str) -> Any:
    """Return a value as its type; the text of the error names the field that is wrong."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise MalformedPipeFrameError(f"{shown(value)} is no {what}: {error}") from None


@contextlib.contextmanager
def _reading(value: object, what: str) -> Iterator[None]:
    try:
        yield
    except OddAnswerError as odd:
        raise MalformedPipeFrameError(f"{shown(value)} is no {what}: {odd}") from None
