"""The settings of the `SIM` backend: slice, start-up time and faults. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...errors import ConfigurationError
from ..base import BackendConfig
from .slice import TOPOLOGY_VARIABLE, SimSlice, SliceShape, default_shape

START_SECONDS_VARIABLE = "BRINGUP_SIM_START_SECONDS"
FAULT_VARIABLE = "BRINGUP_SIM_FAULT"

# Seconds: a longer wait would overflow that of a thread.
_MAX_SECONDS = 1e6
# Far beyond the devices or checks of any test.
_MAX_COUNT = 1_000_000

_SIGNALS = ("SEGV", "ABRT", "BUS", "FPE", "ILL", "KILL")


@dataclass(frozen=True, slots=True)
class SimFaults:
    """The faults of one client.

    Attributes:
        failure: what `start` raises, or `None`.
        unhealthy: what the health check reports from the beginning, or `None`.
        degraded: what it reports later, and how many seconds after `start`, or `None`.
        flap: how many health checks in turn pass, and then fail; 0 for none that fails so.
        stuck: seconds after `start` from which on the health check never returns, or `None`.
        slow: seconds that `start` takes longer.
        gil: seconds of `start` during which no other thread of the process runs.
        hang: `start` never returns.
        crash: the signal that `start` ends the process with, without its SIG, or empty.
        duplicate: the last device has the core id of another client's first.
        wrong: the core id that the last device has instead of its own, or `None`.
        missing: how many devices, from the last, are not there.
        shifted: the last device has the location of another client's first.
        shared: the last device is another client's first, under a core id of its own.
    """

    failure: str | None = None
    unhealthy: str | None = None
    degraded: tuple[float, str] | None = None
    flap: int = 0
    stuck: float | None = None
    slow: float = 0.0
    gil: float = 0.0
    hang: bool = False
    crash: str = ""
    duplicate: bool = False
    wrong: int | None = None
    missing: int = 0
    shifted: bool = False
    shared: bool = False

    @classmethod
    def parse(cls, text: str, *, client_id: int, num_clients: int) -> SimFaults:
        """Parse a list of `client:kind[:argument]`, and keep one client's; the last of each kind counts.

        Raises:
            ConfigurationError: an item is malformed, or names a client that the job does not have.
        """
        fields: dict[str, Any] = {}
        for item in filter(None, (part.strip() for part in text.split(","))):
            client, kind, value = _parse_item(item, num_clients)
            if client is None or client == client_id:
                fields[kind.field] = value
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class SimSettings:
    """The settings of the `SIM` backend.

    Attributes:
        slice: the slice and its split over the clients.
        start_seconds: how long `start` takes.
        faults: what goes wrong on this client.
    """

    slice: SimSlice
    start_seconds: float
    faults: SimFaults

    @classmethod
    def parse(cls, config: BackendConfig) -> SimSettings:
        """Read the settings from the environment in `config`; an empty variable counts as unset.

        Raises:
            ConfigurationError: one of them is malformed, or the slice does not divide over the clients.
        """
        topology = _setting(config.environment, TOPOLOGY_VARIABLE)
        shape = SliceShape.parse(topology) if topology else default_shape(config.num_clients)
        seconds = _setting(config.environment, START_SECONDS_VARIABLE)
        return cls(
            slice=SimSlice(shape, config.num_clients, megacore=config.enable_megacore),
            start_seconds=_seconds(seconds, f"{START_SECONDS_VARIABLE}={seconds!r}") if seconds else 0.0,
            faults=SimFaults.parse(
                _setting(config.environment, FAULT_VARIABLE),
                client_id=config.client_id,
                num_clients=config.num_clients,
            ),
        )


def _setting(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name, "").strip()


class _Kind(NamedTuple):
    """A kind of fault: the field of `SimFaults` that it sets, and how its argument, as text, and the item are read."""

    field: str
    read: Callable[[str, str], Any] | None = None


def _parse_item(item: str, num_clients: int) -> tuple[int | None, _Kind, Any]:
    """Return the client (`None` for all), the kind and the value of one fault, checked."""
    client, _, rest = item.partition(":")
    name, colon, argument = rest.partition(":")
    if client != "*" and not (client.isascii() and client.isdecimal()):
        raise _bad_fault(item, f"{client!r} is neither a client id nor *")
    if client != "*" and int(client) >= num_clients:
        raise _bad_fault(item, f"the job has no client {client}, its clients are 0 to {num_clients - 1}")
    if (kind := _KINDS.get(name)) is None:
        raise _bad_fault(item, f"{name!r} is not a kind of fault")
    if colon and kind.read is None:
        raise _bad_fault(item, f"{name} takes no argument")
    if name in ("duplicate", "shifted", "shared") and num_clients < 2:
        raise _bad_fault(item, f"{name} needs another client to take from, and the job has one")
    value = True if kind.read is None else kind.read(argument, item)
    return (None if client == "*" else int(client)), kind, value


def _text(default: str) -> Callable[[str, str], str]:
    return lambda argument, _: argument or default


def _duration(argument: str, item: str) -> float:
    return _seconds(argument, f"{FAULT_VARIABLE}: item {item!r}")


def _degradation(argument: str, item: str) -> tuple[float, str]:
    seconds, _, text = argument.partition(":")
    return _duration(seconds, item), text or "simulated wear"


def _count(argument: str, item: str) -> int:
    if not argument:
        return 1
    if not re.fullmatch(r"[0-9]{1,7}", argument, re.ASCII) or not 1 <= int(argument) <= _MAX_COUNT:
        raise _bad_fault(item, f"{argument!r} is no number from 1 to {_MAX_COUNT}")
    return int(argument)


def _core_id(argument: str, item: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,18}|", argument, re.ASCII):
        raise _bad_fault(item, f"{argument!r} is no whole number")
    return int(argument or -1)


def _signal(argument: str, item: str) -> str:
    name = (argument or "SEGV").upper().removeprefix("SIG")
    if name not in _SIGNALS:
        raise _bad_fault(item, f"{argument!r} is none of {', '.join(_SIGNALS)}")
    return name


_KINDS = {
    "raise": _Kind("failure", _text("simulated failure")),
    "hang": _Kind("hang"),
    "slow": _Kind("slow", _duration),
    "gil": _Kind("gil", _duration),
    "crash": _Kind("crash", _signal),
    "duplicate": _Kind("duplicate"),
    "wrong": _Kind("wrong", _core_id),
    "missing": _Kind("missing", _count),
    "shifted": _Kind("shifted"),
    "shared": _Kind("shared"),
    "unhealthy": _Kind("unhealthy", _text("simulated defect")),
    "degrade": _Kind("degraded", _degradation),
    "flap": _Kind("flap", _count),
    "stuck": _Kind("stuck", _duration),
}


def _seconds(text: str, origin: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= _MAX_SECONDS:
        raise ConfigurationError(f"{origin}: {text!r} is no duration; give seconds from 0 to {_MAX_SECONDS:.0f}.")
    return seconds


def _bad_fault(item: str, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"{FAULT_VARIABLE}: item {item!r}: {reason}; give a comma-separated list of client:kind[:argument], client a "
        f"client id or *, kind one of {', '.join(_KINDS)} (slow, gil and stuck take seconds, raise and unhealthy a "
        "text, degrade seconds and a text, crash a signal, wrong a core id, missing and flap a number)."
    )
