"""The settings of the `SIM` backend: the slice, how long it takes to start, and the faults asked for. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import ConfigurationError
from .base import BackendConfig
from .sim_slice import TOPOLOGY_VARIABLE, SimSlice, SliceShape, default_shape

__all__ = ["FAULT_VARIABLE", "START_SECONDS_VARIABLE", "SimFaults", "SimSettings"]

START_SECONDS_VARIABLE = "BRINGUP_SIM_START_SECONDS"
FAULT_VARIABLE = "BRINGUP_SIM_FAULT"

# For each kind: whether it takes an argument.
_ARGUMENT = {
    "raise": True,
    "hang": False,
    "slow": True,
    "duplicate": False,
    "missing": False,
    "unhealthy": True,
    "shifted": False,
}

# Waiting longer than this overflows the wait of a thread.
_MAX_SECONDS = 1e6


@dataclass(frozen=True, slots=True)
class SimFaults:
    """What goes wrong on one client.

    Attributes:
        failure: what `start` raises, or `None`.
        unhealthy: what the health check reports, or `None`.
        slow: seconds that `start` takes longer.
        hang: `start` never returns.
        duplicate: the last device has the core id of another client's first.
        missing: the last device is not there.
        shifted: the last device has the location of another client's first.
    """

    failure: str | None = None
    unhealthy: str | None = None
    slow: float = 0.0
    hang: bool = False
    duplicate: bool = False
    missing: bool = False
    shifted: bool = False

    @classmethod
    def parse(cls, text: str, *, client_id: int, num_clients: int) -> SimFaults:
        """Parse a list of `client:kind[:argument]`, and keep what concerns one client.

        Raises:
            ConfigurationError: an item is malformed, or names a client that the job does not have.
        """
        arguments: dict[str, str] = {}
        for item in filter(None, (part.strip() for part in text.split(","))):
            client, kind, argument = _parse_item(item, num_clients)
            if client is None or client == client_id:
                arguments[kind] = argument
        return cls(
            failure=arguments["raise"] or "simulated failure" if "raise" in arguments else None,
            unhealthy=arguments["unhealthy"] or "simulated defect" if "unhealthy" in arguments else None,
            slow=float(arguments.get("slow", 0.0)),
            hang="hang" in arguments,
            duplicate="duplicate" in arguments,
            missing="missing" in arguments,
            shifted="shifted" in arguments,
        )


@dataclass(frozen=True, slots=True)
class SimSettings:
    """All that the `SIM` backend was asked for.

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


def _parse_item(item: str, num_clients: int) -> tuple[int | None, str, str]:
    """Return the client (`None` for all), the kind and the argument of one fault, checked."""
    client, _, rest = item.partition(":")
    kind, colon, argument = rest.partition(":")
    if client != "*" and not (client.isascii() and client.isdecimal()):
        raise _bad_fault(item, f"{client!r} is neither a client id nor *")
    if client != "*" and int(client) >= num_clients:
        raise _bad_fault(item, f"the job has no client {client}, its clients are 0 to {num_clients - 1}")
    if kind not in _ARGUMENT:
        raise _bad_fault(item, f"{kind!r} is not a kind of fault")
    if colon and not _ARGUMENT[kind]:
        raise _bad_fault(item, f"{kind} takes no argument")
    if kind in ("duplicate", "shifted") and num_clients < 2:
        raise _bad_fault(item, f"{kind} needs another client to take from, and the job has one")
    if kind == "slow":
        _seconds(argument, f"{FAULT_VARIABLE}: item {item!r}")
    return (None if client == "*" else int(client)), kind, argument


def _seconds(text: str, origin: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= _MAX_SECONDS:
        raise ConfigurationError(f"{origin}: {text!r} is no duration; give seconds from 0 to {_MAX_SECONDS:.0f}.")
    return seconds


def _bad_fault(item: str, reason: str) -> ConfigurationError:
    kinds = ", ".join(_ARGUMENT)
    return ConfigurationError(
        f"{FAULT_VARIABLE}: item {item!r}: {reason}; give a comma-separated list of client:kind[:argument], "
        f"client a client id or *, kind one of {kinds} (slow takes seconds, raise and unhealthy a text)."
    )
