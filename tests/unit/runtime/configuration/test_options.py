"""Options: precedence, conversion, and errors with the origin of the value."""

from __future__ import annotations

import dataclasses
import inspect
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.errors import ConfigurationError
from bringup.runtime.configuration.options import Options

DEFAULTS = {
    "initialization_timeout": 300.0,
    "heartbeat_interval": 1.0,
    "heartbeat_timeout": 10.0,
    "shutdown_timeout": 30.0,
    "device_timeout": 120.0,
    "health_interval": 30.0,
    "unhealthy_action": "report",
    "isolate_backend": False,
    "allow_empty": False,
    "share_devices": False,
    "stall_timeout": None,
    "group_size": None,
    "kv_max_bytes": 2**30,
    "bind_address": None,
    "advertise_address": None,
    "ring_port": 0,
    "status_address": None,
    "token": None,
    "token_file": None,
    "tls_ca": None,
    "tls_cert": None,
    "tls_key": None,
    "tls_uri_prefix": None,
    "insecure": False,
}
DURATIONS = [name for name in DEFAULTS if name.endswith(("_timeout", "_interval"))]
UNAVAILABLE = {"status_address": "localhost:8080"}


def resolve(
    overrides: dict[str, object] | None = None, environ: dict[str, str] | None = None, options: Options | None = None
) -> Options:
    return Options.resolve(options, overrides or {}, environ or {})


def refusal(
    overrides: dict[str, object] | None = None, environ: dict[str, str] | None = None, options: Options | None = None
) -> str:
    with pytest.raises(ConfigurationError) as caught:
        resolve(overrides, environ, options)
    return str(caught.value)


def test_the_defaults_are_those_of_the_contract() -> None:
    assert dataclasses.asdict(Options()) == DEFAULTS
    assert resolve() == Options()


def test_the_defaults_are_valid() -> None:
    given = {name: value for name, value in DEFAULTS.items() if value is not None}
    assert resolve(given) == Options()


def test_every_field_is_documented() -> None:
    documentation = inspect.getdoc(Options)
    assert documentation is not None
    for name in DEFAULTS:
        assert f"\n    {name}: " in documentation


def test_the_environment_fills_what_no_argument_gives() -> None:
    environ = {"BRINGUP_INITIALIZATION_TIMEOUT": " 5.5 ", "BRINGUP_DEVICE_TIMEOUT": "7", "BRINGUP_RING_PORT": "9100"}
    resolved = resolve({"device_timeout": 8}, environ)
    assert resolved == Options(initialization_timeout=5.5, device_timeout=8.0, ring_port=9100)
    assert isinstance(resolved.device_timeout, float)


def test_explicit_options_win_whole_over_the_environment() -> None:
    given = Options(heartbeat_timeout=4.0)
    environ = {"BRINGUP_HEARTBEAT_TIMEOUT": "abc", "BRINGUP_DEVICE_TIMEOUT": "7"}
    assert resolve({}, environ, given) == given
    assert resolve({"device_timeout": 8.0}, environ, given) == Options(heartbeat_timeout=4.0, device_timeout=8.0)


def test_options_without_a_secret_leave_it_to_the_environment() -> None:
    environ = {"BRINGUP_TOKEN_FILE": "/etc/token", "BRINGUP_INSECURE": "1", "BRINGUP_HEARTBEAT_TIMEOUT": "abc"}
    silent = resolve({}, environ, Options(heartbeat_timeout=4.0))
    assert silent == Options(heartbeat_timeout=4.0, token_file="/etc/token", insecure=True)
    given = resolve({}, environ, Options(token_file="/own"))
    assert given == Options(token_file="/own")


@pytest.mark.parametrize("name", DEFAULTS)
def test_an_empty_variable_is_not_set(name: str) -> None:
    assert resolve({}, {f"BRINGUP_{name.upper()}": "  "}) == Options()


def test_an_argument_of_none_puts_an_optional_field_back() -> None:
    environ = {"BRINGUP_BIND_ADDRESS": "10.0.0.1", "BRINGUP_TOKEN": "s3cret"}
    assert resolve({"bind_address": None, "token": None}, environ) == Options()


def test_unknown_arguments_are_refused_with_the_closest_field() -> None:
    message = refusal({"heartbeat_timout": 5})
    assert "'heartbeat_timout'" in message
    assert "'heartbeat_timeout'" in message


def test_options_of_another_type_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"must be a bringup.Options"):
        Options.resolve({"insecure": True}, {}, {})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", DURATIONS)
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("abc", "is not a number of seconds"),
        ("10s", "is not a number of seconds"),
        ("1_0", "is not a number of seconds"),
        ("\u0661", "is not a number of seconds"),
        ("1 2", "is not a number of seconds"),
        ("nan", "must be a finite number of seconds"),
        ("inf", "must be a finite number of seconds"),
        ("1e400", "must be a finite number of seconds"),
        ("0", "must be greater than 0"),
        ("-1", "must be greater than 0"),
        ("2e9", "must be at most 1000000000 seconds"),
    ],
)
def test_a_bad_duration_in_the_environment(name: str, text: str, complaint: str) -> None:
    assert refusal({}, {f"BRINGUP_{name.upper()}": text}).startswith(f"BRINGUP_{name.upper()}={text!r} {complaint}")


@pytest.mark.parametrize("name", DURATIONS)
@pytest.mark.parametrize("value", ["10", None, True, b"10", [10], 1j, float("nan"), float("inf"), 0, -1.0, 10**400])
def test_a_bad_duration_as_an_argument(name: str, value: object) -> None:
    if value is None and DEFAULTS[name] is None:
        assert getattr(resolve({name: value}), name) is None
        return
    message = refusal({name: value})
    assert message.startswith(f"{name}=")
    assert "(argument)" in message


@pytest.mark.parametrize("value", [5, 5.0, np.float32(5), np.int64(5), Fraction(5)])
def test_any_real_number_is_a_duration(value: object) -> None:
    resolved = resolve({"device_timeout": value}).device_timeout
    assert resolved == 5.0
    assert type(resolved) is float


@pytest.mark.parametrize(
    ("overrides", "environ", "options", "expected"),
    [
        (
            {"heartbeat_timeout": 0.5},
            {},
            None,
            "heartbeat_timeout=0.5 (argument) must be greater than heartbeat_interval=1.0 (default)",
        ),
        (
            {},
            {"BRINGUP_HEARTBEAT_INTERVAL": "20"},
            None,
            "heartbeat_timeout=10.0 (default) must be greater than BRINGUP_HEARTBEAT_INTERVAL='20'",
        ),
        (
            {"heartbeat_interval": 4},
            {},
            Options(heartbeat_timeout=4.0),
            "heartbeat_timeout=4.0 (options) must be greater than heartbeat_interval=4 (argument)",
        ),
    ],
)
def test_the_heartbeat_timeout_exceeds_the_interval(
    overrides: dict[str, object], environ: dict[str, str], options: Options | None, expected: str
) -> None:
    assert refusal(overrides, environ, options).startswith(expected)


def test_given_options_are_checked_too() -> None:
    assert "device_timeout=-1 (options)" in refusal(options=Options(device_timeout=-1))


@pytest.mark.parametrize("port", [0, 1, 65535, np.int32(7)])
def test_ring_ports(port: int) -> None:
    assert resolve({"ring_port": port}).ring_port == port
    assert resolve({}, {"BRINGUP_RING_PORT": str(port)}).ring_port == port


@pytest.mark.parametrize("port", [-1, 65536, True, 1.0, "80", None])
def test_bad_ring_ports_as_arguments(port: object) -> None:
    assert f"ring_port={port!r} (argument)" in refusal({"ring_port": port})


@pytest.mark.parametrize("text", ["-1", "65536", "x", "1.0", "1_0", "9" * 5000])
def test_bad_ring_ports_in_the_environment(text: str) -> None:
    assert refusal({}, {"BRINGUP_RING_PORT": text}).startswith(f"BRINGUP_RING_PORT='{text[:5]}")


@pytest.mark.parametrize(
    ("text", "flag"),
    [(text, True) for text in ("1", "true", "yes", "on", "TRUE", "Yes", " On ")]
    + [(text, False) for text in ("0", "false", "no", "off", "FALSE", "No", "oFF")],
)
def test_switches_in_the_environment(text: str, flag: bool) -> None:
    assert resolve({}, {"BRINGUP_INSECURE": text}).insecure is flag


@pytest.mark.parametrize("text", ["2", "y", "maybe", "None"])
def test_bad_switches_in_the_environment(text: str) -> None:
    assert refusal({}, {"BRINGUP_INSECURE": text}).startswith(f"BRINGUP_INSECURE={text!r} is not a switch")


@pytest.mark.parametrize("value", [1, "true", None])
def test_bad_switches_as_arguments(value: object) -> None:
    assert f"insecure={value!r} (argument) is not True or False" in refusal({"insecure": value})


@pytest.mark.parametrize("name", ["bind_address", "advertise_address"])
@pytest.mark.parametrize(("text", "host"), [("10.0.0.1", "10.0.0.1"), ("[::1]", "::1"), ("::1", "::1"), ("H0", "h0")])
def test_hosts(name: str, text: str, host: str) -> None:
    assert getattr(resolve({name: text}), name) == host
    assert getattr(resolve({}, {f"BRINGUP_{name.upper()}": text}), name) == host


@pytest.mark.parametrize("name", ["bind_address", "advertise_address"])
@pytest.mark.parametrize("value", ["h0:80", "[::1]:80", "a b", "", 5, b"h0", "1.2.3"])
def test_bad_hosts(name: str, value: object) -> None:
    message = refusal({name: value})
    assert message.startswith(f"{name}={value!r} (argument)")


def test_a_wildcard_can_be_bound_and_not_advertised() -> None:
    assert resolve({"bind_address": "0.0.0.0"}).bind_address == "0.0.0.0"
    assert "means every interface" in refusal({"advertise_address": "::"})


@pytest.mark.parametrize("name", UNAVAILABLE)
def test_what_this_version_lacks_is_refused_wherever_it_is_asked_for(name: str) -> None:
    value = UNAVAILABLE[name]
    variable = f"BRINGUP_{name.upper()}"
    assert variable in refusal({}, {variable: value})
    for message in (
        refusal({}, {variable: value}),
        refusal({name: value}),
        refusal(options=Options(**{name: value})),  # type: ignore[arg-type]
    ):
        assert name in message.lower()
        assert "does not have yet" in message


def test_a_malformed_status_address_says_so() -> None:
    assert "has no port" in refusal({"status_address": "localhost"})


def test_the_token_is_never_shown() -> None:
    assert "s3cret" not in repr(Options(token="s3cret"))
    for resolved in (resolve({"token": "s3cret"}), resolve({}, {"BRINGUP_TOKEN": "s3cret"}, Options(token="s3cret"))):
        assert resolved == Options()
    with pytest.raises(ConfigurationError) as caught:
        resolve({"token": b"s3cret"})
    assert "s3cret" not in str(caught.value)


@given(st.dictionaries(st.sampled_from([f"BRINGUP_{name.upper()}" for name in DEFAULTS]), st.text()))
def test_any_environment_gives_options_or_a_configuration_error(environ: dict[str, str]) -> None:
    try:
        resolved = resolve({}, environ)
    except ConfigurationError:
        return
    assert resolve({}, {}, resolved) == resolved
