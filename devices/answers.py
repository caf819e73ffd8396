"""Checks of the results and errors of a backend's calls. Pure.

A backend may be a plug-in, and what it returns travels far: into the merge, over the wire, into arrays of 32 bits. All
that a later step relies on is checked here, once, for a backend in a thread as for one in a process of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import TypeVar

from ..errors import BringupError, DeviceError
from .base import CoreLocation, Discovery, Health, LocalDevice
from .texts import clipped, shown, visible
from .whole_numbers import as_whole_number

CORE_ID_MAX = 2**31 - 1
"""The largest core id: int32."""

COORDINATE_MAX = 2**31 - 2
"""The largest coordinate: the extent of the machine, one more, is an int32 as well."""

KIND_CHARS_MAX = 256
"""Characters of a kind: names of models have some tens."""

DEVICES_MAX = 65_536
"""Devices of one client: far beyond any host, and few enough for the arrays of the merge."""

KINDS_BYTES_MAX = 1 << 19
"""The most bytes of the kinds of a client's devices on the wire, where equal ones in a row are sent once."""

# Bytes of a kind's length and of the length of its run, at most.
_KIND_OVERHEAD = 16

T = TypeVar("T")


class OddAnswerError(Exception):
    """A result that the port does not allow; the text continues the words `start returned`."""


def checked_devices(answer: object) -> tuple[LocalDevice, ...]:
    """Return the devices of `start`, with Python's own numbers and printable kinds.

    Raises:
        OddAnswerError: it is no sequence of devices, or a field of one has a wrong type or is out of range.
    """
    if isinstance(answer, str | bytes) or not isinstance(answer, Iterable):
        raise OddAnswerError(f"{shown(answer)}, which is no sequence of LocalDevice")
    devices: list[LocalDevice] = []
    for index, device in enumerate(answer):
        if index == DEVICES_MAX:
            raise OddAnswerError(f"more than {DEVICES_MAX} devices")
        devices.append(_checked_device(index, device))
    told = sum(len(kind.encode()) + _KIND_OVERHEAD for kind, _ in itertools.groupby(one.kind for one in devices))
    if told > KINDS_BYTES_MAX:
        raise OddAnswerError(
            f"{len(devices)} devices with so many different kinds that to tell them takes {told} bytes, which is more "
            f"than {KINDS_BYTES_MAX}; a kind is the name of a model"
        )
    return tuple(devices)


def checked_health(answer: object) -> Health:
    """Return the result of `check_health`, with Python's own flags.

    Raises:
        OddAnswerError: it is no `Health`, or a field has a wrong type.
    """
    health = _expected(answer, Health)
    return Health(
        _flag(health.ok, "a Health with ok"),
        _text(health.detail, "a Health with detail"),
        _flag(health.permanent, "a Health with permanent"),
    )


def checked_discovery(answer: object) -> Discovery:
    """Return the result of `discover`, with Python's own flag.

    Raises:
        OddAnswerError: it is no `Discovery`, or a field has a wrong type.
    """
    discovery = _expected(answer, Discovery)
    return Discovery(
        _flag(discovery.present, "a Discovery with present"), _text(discovery.detail, "a Discovery with detail")
    )


def is_sound(error: BringupError) -> bool:
    """Whether an error has valid text and attributes: a class that a plug-in derived may have any."""
    try:
        str(error)
    except Exception:  # noqa: BLE001 - it is code of whoever made the class
        return False
    if not isinstance(error, DeviceError):
        return True
    return isinstance(error.cause, str) and (error.client_id is None or type(error.client_id) is int)


def _checked_device(index: int, device: object) -> LocalDevice:
    if not isinstance(device, LocalDevice):
        raise OddAnswerError(f"{shown(device)} as device {index}, which is no LocalDevice")
    kind, fingerprint = device.kind, device.fingerprint
    if not isinstance(kind, str) or not 1 <= len(kind) <= KIND_CHARS_MAX:
        raise OddAnswerError(
            f"device {index} with kind={shown(kind)}, which is no text of 1 to {KIND_CHARS_MAX} characters"
        )
    if not isinstance(fingerprint, str) or len(fingerprint) > KIND_CHARS_MAX:
        raise OddAnswerError(
            f"device {index} with fingerprint={shown(fingerprint)}, which is no text of at most {KIND_CHARS_MAX} "
            "characters"
        )
    core_id = device.core_id
    if core_id is not None:
        core_id = _number(
            core_id, CORE_ID_MAX, lambda value: f"device {index} with core_id={shown(value)}", ", or None"
        )
    return LocalDevice(visible(kind), core_id, _location(index, device.location), fingerprint)


def _location(index: int, location: object) -> CoreLocation | None:
    if location is None:
        return None
    if not isinstance(location, tuple) or len(location) != len(CoreLocation._fields):
        raise OddAnswerError(
            f"device {index} with location={shown(location)}, which is no CoreLocation(x, y, z, core), nor None"
        )
    named = zip(CoreLocation._fields, location, strict=True)
    return CoreLocation(*(_coordinate(index, name, value) for name, value in named))


def _coordinate(index: int, name: str, value: object) -> int:
    return _number(value, COORDINATE_MAX, lambda value: f"device {index} with {name}={shown(value)} in its location")


def _number(value: object, largest: int, what: Callable[[object], str], other: str = "") -> int:
    number = as_whole_number(value)
    if number is None or not 0 <= number <= largest:
        raise OddAnswerError(f"{what(value)}, which is no whole number from 0 to {largest}{other}")
    return number


def _flag(value: object, what: str) -> bool:
    """Return a flag; those of numpy, and 0 and 1, count as such."""
    item = getattr(value, "item", None)
    try:
        plain = item() if callable(item) else value
        if isinstance(plain, int) and plain in (0, 1):
            return bool(plain)
    except Exception as error:
        raise OddAnswerError(f"{what}={shown(value)}, which is no bool") from error
    raise OddAnswerError(f"{what}={shown(value)}, which is no bool")


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise OddAnswerError(f"{what}={shown(value)}, which is no text")
    return clipped(value)


def _expected(answer: object, kind: type[T]) -> T:
    if not isinstance(answer, kind):
        raise OddAnswerError(f"{shown(answer)}, which is no {kind.__name__}")
    return answer
