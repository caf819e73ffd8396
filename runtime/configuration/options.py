"""The options of a client: fields, defaults with their reasons, and checks."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, get_args

from ...errors import ConfigurationError
from ...transport.addresses import Address
from ..machines.groups import GROUP_SIZE_MIN
from .settings import (
    Origin,
    Setting,
    as_address,
    as_choice,
    as_duration,
    as_flag,
    as_host,
    as_integer,
    as_text,
    revealed,
)

UnhealthyAction = Literal["report", "fail"]

# Of heartbeats and health checks, in seconds: more often there would be time for nothing else.
_SHORTEST_INTERVAL = 0.001


class OptionOverrides(TypedDict, total=False):
    """The fields of `Options` as keyword arguments of `initialize()`."""

    initialization_timeout: float
    heartbeat_interval: float
    heartbeat_timeout: float
    shutdown_timeout: float
    device_timeout: float
    health_interval: float
    unhealthy_action: UnhealthyAction
    isolate_backend: bool
    allow_empty: bool
    share_devices: bool
    stall_timeout: float | None
    group_size: int | None
    kv_max_bytes: int
    bind_address: str | None
    advertise_address: str | None
    ring_port: int
    status_address: str | None
    token: str | None
    token_file: str | None
    tls_ca: str | None
    tls_cert: str | None
    tls_key: str | None
    tls_uri_prefix: str | None
    insecure: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a client. Every field is also read from `BRINGUP_<FIELD IN CAPITALS>`. Durations are in seconds.

    Attributes:
        initialization_timeout: the deadline of `initialize()` for all clients to come up. 300, as jax has it: the hosts
            of a large job start minutes apart.
        heartbeat_interval: the time between two heartbeats of a client. 1: each takes client 0 about 0.2 ms, a fifth of
            a core with 1,000 clients.
        heartbeat_timeout: the silence after which a client counts as failed; more than the interval. 10: longer than
            the pauses of a host that swaps or of a program that holds the GIL. The death of a process is noticed at
            once by its connections, and does not take this long. While more than 64 clients come up, 0.2 s more for
            each beyond, up to 60: one machine may have to run them all.
        shutdown_timeout: the time that `shutdown()` waits for the other clients. 30, the grace period of Kubernetes,
            after which SIGKILL would end the wait.
        device_timeout: the time that one call into a device backend may take. 120: a host with many devices takes
            tens of seconds to bring them up; a call of two minutes hangs.
        health_interval: the time between two health checks of the devices. 30: checks run beside the program, on the
            same devices; a suspicion is checked again sooner.
        unhealthy_action: the consequence for the job where this client's devices become unhealthy: `report` shows it in
            `System.members`, `fail` ends the job with a `DeviceFailedError` on every client. `report`: a check that is
            wrong must not end a job that computes.
        isolate_backend: run the device backend in a child process, which can be killed where native code hangs. The
            devices are the child's then: not for frameworks that drive them from this process.
        allow_empty: let this client take part without devices; another client must have some. Off: a host whose devices
            are missing is to be noticed.
        share_devices: let this client bring up devices that other clients of its host bring up as well, where these
            allow it too: all that it sees, and no part of them. Off: most devices have one owner.
        stall_timeout: the time that a client may stay at one step (`System.report_progress`) without waiting for others
            before it counts as failed. `None`, for ever: only the program knows how long a step takes. Client 0's
            counts.
        group_size: the clients of a group, about, in which a large job merges and watches; 0 for no groups. `None`: in
            a job of at least 128 the square root of its clients, as rounds through all of them take long. Client 0's
            counts.
        kv_max_bytes: the bound on keys and values of the key-value store, in bytes. 1 GiB, of the memory of client 0,
            whose option counts.
        bind_address: the host name or IP address to listen on; `None` for all interfaces of the address's family, or
            loopback for a loopback job, which takes no other unless it was given a token, certificates or `insecure`.
        advertise_address: the host name or IP address that the other clients are to use; `None` for the one that the
            job gives this client, or that it reaches the coordinator from.
        ring_port: the TCP port of the ring; 0 for any free one.
        status_address: reserved for a status page; this version refuses it.
        token: the secret of the job, 64 hexadecimal digits as `bringup token` prints, the same for all its clients.
            `None`: see `token_file`; options that were resolved never have it.
        token_file: the path of a file with the token, this user's, of mode 0600 or stricter, and no symbolic link.
            `None`: the token comes from the descriptor `BRINGUP_TOKEN_FD`, which `bringup run` hands over, or else, for
            a loopback job, from a file of this user that the first client makes.
        tls_ca: the path of the certificates, in PEM, of the authorities of a public-key infrastructure of your own,
            instead of a token; together with `tls_cert` and `tls_key`.
        tls_cert: the path of this client's certificate, and those between it and the authority.
        tls_key: the path of its private key, not encrypted.
        tls_uri_prefix: the beginning of a URI that the certificate of every client must have, such as
            `spiffe://example.org/training/`. `None`: any certificate of `tls_ca` will do.
        insecure: let the clients talk without authentication or encryption: anybody who reaches their ports can join
            or stop the job, and all who carry their packets can read them. It excludes a token and certificates.
    """

    initialization_timeout: float = 300.0
    heartbeat_interval: float = 1.0
    heartbeat_timeout: float = 10.0
    shutdown_timeout: float = 30.0
    device_timeout: float = 120.0
    health_interval: float = 30.0
    unhealthy_action: UnhealthyAction = "report"
    isolate_backend: bool = False
    allow_empty: bool = False
    share_devices: bool = False
    stall_timeout: float | None = None
    group_size: int | None = None
    kv_max_bytes: int = 1024**3
    bind_address: str | None = None
    advertise_address: str | None = None
    ring_port: int = 0
    status_address: str | None = None
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_uri_prefix: str | None = None
    insecure: bool = False

    @staticmethod
    def resolve(options: Options | None, overrides: Mapping[str, object], environ: Mapping[str, str]) -> Options:
        """Combine the user's settings, and check them.

        Args:
            options: wins whole over the environment; `None` to read the environment. A token, certificates and
                `insecure`, where it has none of these, are read there all the same: they belong to the machines.
            overrides: single fields, which win over both.
            environ: the environment variables.

        Raises:
            ConfigurationError: a value is wrong, or a name in `overrides` is no field; the message names the variable
                or argument.
        """
        return Options.of_settings(option_settings(options, overrides, environ))

    @staticmethod
    def of_settings(settings: Mapping[str, Setting]) -> Options:
        """Check what `option_settings` returned; see `resolve`."""
        values: dict[str, Any] = {name: _value(name, setting) for name, setting in settings.items()}
        resolved = Options(**{**values, "token": None})
        _check_together(resolved, settings)
        refuse_unavailable(settings)
        return resolved


def option_settings(
    options: Options | None, overrides: Mapping[str, object], environ: Mapping[str, str]
) -> dict[str, Setting]:
    """Return every option by name, with its value as given and its origin; see `Options.resolve`.

    Raises:
        ConfigurationError: a name in `overrides` is no field, or `options` no `Options`.
    """
    if options is not None and not isinstance(options, Options):
        raise ConfigurationError(f"options={options!r} (argument) must be a bringup.Options, or None")
    _refuse_unknown(overrides)
    return {name: _setting(name, options, overrides, environ) for name in _READERS}


UNAVAILABLE = {"status_address": "a status page"}
"""Reserved options, and the features that they ask for."""

SECURITY_OPTIONS = ("token", "token_file", "tls_ca", "tls_cert", "tls_key", "tls_uri_prefix", "insecure")
"""The options by which the clients of a job know each other."""


def refuse_unavailable(settings: Mapping[str, Setting]) -> None:
    """Refuse reserved options: nobody may believe that one of them has an effect.

    Raises:
        ConfigurationError: one of them is set.
    """
    for name, feature in UNAVAILABLE.items():
        if settings[name].is_set:
            raise settings[name].error(f"asks for {feature}, which this version of bringup does not have yet: unset it")


def _advertised(setting: Setting) -> str:
    host = as_host(setting)
    if Address(host, 1).is_wildcard:
        raise setting.error("means every interface: give the one address that the other clients can connect to")
    return host


def _interval(setting: Setting) -> float:
    return as_duration(setting, least=_SHORTEST_INTERVAL)


def _ring_port(setting: Setting) -> int:
    return as_integer(setting, "a port in 0..65535", least=0, most=65535)


def _group_size(setting: Setting) -> int:
    size = as_integer(setting, f"0, or a number of clients from {GROUP_SIZE_MIN}", least=0, most=2**31)
    if 0 < size < GROUP_SIZE_MIN:
        raise setting.error(f"must be 0, for no groups, or at least {GROUP_SIZE_MIN}")
    return size


def _kv_max_bytes(setting: Setting) -> int:
    return as_integer(setting, "a number of bytes, 0 or more", least=0, most=2**62)


_READERS: Mapping[str, Callable[[Setting], object]] = {
    "initialization_timeout": as_duration,
    "heartbeat_interval": _interval,
    "heartbeat_timeout": as_duration,
    "shutdown_timeout": as_duration,
    "device_timeout": as_duration,
    "health_interval": _interval,
    "unhealthy_action": lambda setting: as_choice(setting, get_args(UnhealthyAction)),
    "isolate_backend": as_flag,
    "allow_empty": as_flag,
    "share_devices": as_flag,
    "stall_timeout": as_duration,
    "group_size": _group_size,
    "kv_max_bytes": _kv_max_bytes,
    "bind_address": as_host,
    "advertise_address": _advertised,
    "ring_port": _ring_port,
    "status_address": as_address,
    "token": as_text,
    "token_file": as_text,
    "tls_ca": as_text,
    "tls_cert": as_text,
    "tls_key": as_text,
    "tls_uri_prefix": as_text,
    "insecure": as_flag,
}
_DEFAULTS = Options()
_SECRETS = ("token",)
_VARIABLES = {name: f"BRINGUP_{name.upper()}" for name in _READERS}
_UNSET = {name: Setting(name, getattr(_DEFAULTS, name), Origin.DEFAULT, name in _SECRETS) for name in _READERS}


def _refuse_unknown(overrides: Mapping[str, object]) -> None:
    for name in overrides:
        if name not in _READERS:
            closest = difflib.get_close_matches(str(name), _READERS, n=1, cutoff=0.0)[0]
            raise ConfigurationError(
                f"{name!r} (argument) is not a setting: the field of Options with the closest name is {closest!r}"
            )


def _setting(
    name: str, options: Options | None, overrides: Mapping[str, object], environ: Mapping[str, str]
) -> Setting:
    if name in overrides:
        return Setting(name, revealed(overrides[name]), Origin.ARGUMENT, name in _SECRETS)
    if options is not None and (name not in SECURITY_OPTIONS or _is_about_security(options)):
        return Setting(name, getattr(options, name), Origin.OPTIONS, name in _SECRETS)
    if _VARIABLES[name] in environ:
        variable = Setting.from_environ(environ, _VARIABLES[name], secret=name in _SECRETS)
        if variable.is_set:
            return variable
    return _UNSET[name]


def _is_about_security(options: Options) -> bool:
    return any(getattr(options, name) != getattr(_DEFAULTS, name) for name in SECURITY_OPTIONS)


def _value(name: str, setting: Setting) -> object:
    is_default = setting.origin is Origin.DEFAULT or (setting.value is None and _UNSET[name].value is None)
    return setting.value if is_default else _READERS[name](setting)


def _check_together(options: Options, settings: Mapping[str, Setting]) -> None:
    if options.heartbeat_timeout <= options.heartbeat_interval:
        raise settings["heartbeat_timeout"].error(
            f"must be greater than {settings['heartbeat_interval']}, "
            "or every client fails between two heartbeats: raise the one or lower the other"
        )
