"""Answers of broken backends: each field with wrong types, ranges and sizes, and odd exceptions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from bringup.devices.base import CoreLocation, Discovery, Health, LocalDevice
from bringup.errors import DeviceInitializationError, DeviceNotFoundError


class Unreadable:
    """Has no repr."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __index__(self) -> int:
        raise RuntimeError("no index")


class SpeechlessError(Exception):
    """Has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class SpeechlessDeviceError(DeviceInitializationError):
    """Has no text either."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


NO_NUMBERS: list[Any] = [0.7, 1.0, "1", b"1", True, np.float32(1), np.bool_(True), [1], float("nan"), 1j, Unreadable()]
OUT_OF_RANGE: list[Any] = [-1, 2**31, 2**63, -(2**70), np.int64(2**40)]
NO_TEXTS: list[Any] = [b"k", 3, ["k"], Unreadable()]
NO_FLAGS: list[Any] = [None, "yes", 2, -1, 0.5, [True], np.array([True, False]), Unreadable()]

DEVICES: list[Any] = [
    *(LocalDevice(kind) for kind in [None, "", "k" * 257, "k" * 10**7, *NO_TEXTS]),
    *(LocalDevice("k", value) for value in NO_NUMBERS + OUT_OF_RANGE),
    *(LocalDevice("k", 0, value) for value in [0, "0000", (), (0, 0, 0), (0,) * 5, [0] * 4, {}, Unreadable()]),
    *(
        LocalDevice("k", 0, CoreLocation(**{**dict.fromkeys(CoreLocation._fields, 0), name: value}))
        for name, value in itertools.product(CoreLocation._fields, [*NO_NUMBERS, *OUT_OF_RANGE, 2**31 - 1, None])
    ),
    *(LocalDevice("k", fingerprint=value) for value in [None, "f" * 257, *NO_TEXTS]),
    None,
    "device",
    Discovery(True, ""),
]

ANSWERS: dict[str, list[Any]] = {
    "start": [
        *([device] for device in DEVICES),
        [LocalDevice("k"), LocalDevice("k", -1)],
        *(None, 3, "devices", b"", LocalDevice("k"), {LocalDevice("k"): 1, 2: 2}, itertools.repeat(LocalDevice("k"))),
    ],
    "check_health": [
        *(Health(value) for value in NO_FLAGS),
        *(Health(True, "", value) for value in NO_FLAGS),
        *(Health(True, value) for value in [None, *NO_TEXTS]),
        *(None, True, "ok", Discovery(True, "")),
    ],
    "discover": [
        *(Discovery(value, "") for value in NO_FLAGS),
        *(Discovery(True, value) for value in [None, *NO_TEXTS]),
        *(None, True, Health(True)),
    ],
}

ERRORS: list[BaseException] = [
    SpeechlessError(),
    SpeechlessDeviceError(),
    DeviceNotFoundError("no", client_id="one"),  # type: ignore[arg-type]
    DeviceNotFoundError("no", cause=3),  # type: ignore[arg-type]
    ExceptionGroup("two", [SpeechlessError(), ValueError("x" * 10**6)]),
    RuntimeError("x" * 10**7),
    RuntimeError("\udcff\x00"),
    RuntimeError(Unreadable()),
    SystemExit(Unreadable()),
    MemoryError(),
    GeneratorExit(),
]


def odd_answers() -> Iterator[tuple[str, Any]]:
    """Yield each call with each odd answer to it."""
    for call, answers in ANSWERS.items():
        for answer in answers:
            yield call, answer


class OddBackend:
    """Gives one odd answer after another, then raises one odd exception after another."""

    device_type = "ODD"
    simulated = True

    def __init__(self, config: object = None) -> None:
        self._left = {call: iter(answers) for call, answers in ANSWERS.items()}
        self._errors = {call: iter(ERRORS) for call in (*ANSWERS, "stop")}

    def discover(self) -> Any:
        """Give the next odd answer."""
        return self._next("discover")

    def start(self) -> Any:
        """Give the next odd answer."""
        return self._next("start")

    def check_health(self) -> Any:
        """Give the next odd answer."""
        return self._next("check_health")

    def stop(self) -> Any:
        """Raise the next odd exception."""
        return self._next("stop")

    def _next(self, call: str) -> Any:
        for answer in self._left.get(call, ()):
            return answer
        for error in self._errors[call]:
            raise error
        return None
