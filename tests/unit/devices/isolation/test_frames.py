"""Messages between a client and the process of its backend."""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bringup.devices.answers import OddAnswerError
from bringup.devices.base import BackendConfig, CoreLocation, Discovery, Health, LocalDevice
from bringup.devices.isolation.frames import (
    HEADER_BYTES,
    PIPE_FRAME_BYTES_MAX,
    ForeignError,
    MalformedPipeFrameError,
    config_from,
    devices_from,
    discovery_from,
    error_from,
    frame_of,
    health_from,
    identity_from,
    message_of,
    plain,
    plain_config,
    plain_error,
    size_of,
)
from bringup.errors import (
    BringupError,
    ConfigurationError,
    DeviceInitializationError,
    DeviceNotFoundError,
    DeviceTimeoutError,
    TopologyError,
)


def sent(message: object) -> Any:
    """Return a value as it arrives."""
    frame = frame_of({"value": message})
    assert size_of(frame[:HEADER_BYTES]) == len(frame) - HEADER_BYTES
    return message_of(frame[HEADER_BYTES:])["value"]


CALL_OF: dict[object, str] = {discovery_from: "discover", health_from: "check_health", devices_from: "start"}

DEVICES = (
    LocalDevice("TPU v5 lite", 7, CoreLocation(1, 2, 3, 0)),
    LocalDevice("größer", None, None),
    LocalDevice("NVIDIA H100", None, None, "GPU-1234"),
)


@pytest.mark.parametrize(
    ("result", "read"),
    [
        (Discovery(present=True, detail="here"), discovery_from),
        (Health(ok=True), health_from),
        (Health(ok=False, detail="hot \udc80", permanent=True), health_from),
        (DEVICES, devices_from),
        ((), devices_from),
    ],
)
def test_results_arrive_as_they_were(result: object, read: Callable[[object], object]) -> None:
    assert read(sent(plain(CALL_OF[read], result))) == result


def test_nothing_arrives_as_nothing() -> None:
    assert sent(plain("stop", None)) is None


@pytest.mark.parametrize(
    "config",
    [
        BackendConfig(),
        BackendConfig(
            client_id=3,
            num_clients=4,
            local_device_ids=(0, 2),
            num_logical_cpu_devices=8,
            enable_megacore=True,
            environment={"PATH": "/bin", "ODD": "\udcff\x01"},
        ),
    ],
)
def test_the_config_arrives_as_it_was(config: BackendConfig) -> None:
    assert config_from(sent(plain_config(config))) == config


@pytest.mark.parametrize(
    "error",
    [
        DeviceNotFoundError("none", client_id=3, cause="why"),
        DeviceInitializationError("failed", client_id=None, cause=""),
        DeviceTimeoutError("late", client_id=0, cause="x"),
        ConfigurationError("odd"),
    ],
)
def test_the_errors_of_backends_arrive_as_they_were(error: BringupError) -> None:
    arrived = error_from(sent(plain_error(error)))
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(19, "No such device"), "OSError: [Errno 19] No such device"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (TopologyError("not a backend's"), "TopologyError: not a backend's"),
    ],
)
def test_other_errors_arrive_as_words(error: BaseException, text: str) -> None:
    arrived = error_from(sent(plain_error(error, "start (npu:3)")))
    assert isinstance(arrived, ForeignError)
    assert (arrived.cause, arrived.at) == (text, "start (npu:3)")


def test_an_odd_answer_arrives_as_one() -> None:
    arrived = error_from(sent(plain_error(OddAnswerError("3, which is no Health"))))
    assert isinstance(arrived, OddAnswerError)
    assert str(arrived) == "3, which is no Health"


@pytest.mark.parametrize("error", [DeviceNotFoundError("x", cause=None), DeviceNotFoundError("x", client_id="one")])  # type: ignore[arg-type]
def test_errors_with_odd_attributes_arrive_as_words(error: BaseException) -> None:
    arrived = error_from(sent(plain_error(error)))
    assert isinstance(arrived, ForeignError)
    assert arrived.cause == "DeviceNotFoundError: x"


def test_long_words_are_cut() -> None:
    assert len(str(error_from(sent(plain_error(ValueError("x" * 10**6)))))) == 16_384
    error = error_from(sent(plain_error(DeviceNotFoundError("x" * 10**6, cause="y" * 10**6))))
    assert isinstance(error, DeviceNotFoundError)
    assert (len(str(error)), len(error.cause)) == (16_384, 16_384)


def test_the_most_devices_that_there_can_be_fit() -> None:
    devices = [LocalDevice("x" * 256, 2**31 - 1, CoreLocation(99, 99, 99, 1))] * 65_536
    assert len(frame_of({"result": plain("start", devices)})) < PIPE_FRAME_BYTES_MAX


def test_a_frame_that_is_too_long_is_neither_sent_nor_read() -> None:
    with pytest.raises(MalformedPipeFrameError, match="more than"):
        frame_of("x" * (PIPE_FRAME_BYTES_MAX + 1))
    with pytest.raises(MalformedPipeFrameError, match=r"a frame of 4294967295 bytes, more than \d+ \(it began with"):
        size_of(struct.pack("!I", 2**32 - 1))


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[]", b"3", b"[" * 100_000])
def test_what_is_no_message_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedPipeFrameError):
        message_of(body)


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (discovery_from, None),
        (discovery_from, {"present": 2, "detail": ""}),
        (discovery_from, {"present": True}),
        (health_from, {"ok": True, "detail": 3, "permanent": False}),
        (health_from, []),
        (devices_from, None),
        (devices_from, {}),
        (devices_from, [["kind", 1, None]]),
        (devices_from, [[None, 1, None, ""]]),
        (devices_from, [["kind", "1", None, ""]]),
        (devices_from, [["kind", 1, None, None]]),
        (devices_from, [["kind", True, None, ""]]),
        (devices_from, [["kind", 1, [0, 0, 0], ""]]),
        (devices_from, [["kind", 1, [0, 0, 0, "x"], ""]]),
        (devices_from, [["kind", 2**31, None, ""]]),
        (devices_from, [["kind", 1, [0, 0, -1, 0], ""]]),
        (error_from, None),
        (error_from, {}),
        (error_from, {"kind": "SystemExit", "text": "", "cause": "", "client_id": None, "at": ""}),
        (error_from, {"kind": "DeviceError", "text": "", "cause": "", "client_id": None, "at": ""}),
        (error_from, {"kind": "DeviceNotFoundError", "text": "", "cause": "", "client_id": "x", "at": ""}),
    ],
)
def test_what_no_backend_answers_is_refused(read: Callable[[object], object], value: object) -> None:
    with pytest.raises(MalformedPipeFrameError):
        read(json.loads(json.dumps(value)))


@pytest.mark.parametrize("result", [3, object(), [1], [LocalDevice("x"), None]])
@pytest.mark.parametrize("call", ["start", "check_health", "discover"])
def test_what_no_backend_returns_is_not_sent(call: str, result: object) -> None:
    with pytest.raises(OddAnswerError, match="which is no"):
        plain(call, result)


@pytest.mark.parametrize(
    ("read", "value", "reason"),
    [
        (identity_from, {"device_type": "CPU"}, "required field `simulated`"),
        (identity_from, {"device_type": 3, "simulated": True}, r"got `int` - at `\$\.device_type`"),
        (health_from, {"ok": True, "detail": 3}, r"Expected `str`, got `int` - at `\$\.detail`"),
        (
            devices_from,
            [["kind", 1, None, ""], ["kind", 1, [0, 0, 0, "x"], ""]],
            r"`int`, got `str` - at `\$\[1\]\[2\]\[3\]`",
        ),
        (error_from, {"kind": "", "text": "", "cause": "", "client_id": "x", "at": ""}, r"at `\$\.client_id`"),
    ],
)
def test_what_is_refused_is_named(read: Callable[[object], object], value: object, reason: str) -> None:
    with pytest.raises(MalformedPipeFrameError, match=reason):
        read(value)


@settings(max_examples=200)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=5)
            | st.dictionaries(st.sampled_from(["kind", "text", "ok", "detail", "present", "at", "client_id"]), inner)
        ),
        max_leaves=15,
    )
)
def test_whatever_comes_is_refused_or_read(value: object) -> None:
    for read in (discovery_from, health_from, devices_from, error_from, identity_from):
        with contextlib.suppress(MalformedPipeFrameError):
            read(value)


def test_who_was_made_arrives_as_it_was() -> None:
    assert identity_from(sent({"device_type": "SIM", "simulated": True})) == ("SIM", True)
