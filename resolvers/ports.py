"""The port of client 0: given by the environment, or derived from the number or name of the job. Pure."""

from __future__ import annotations

import zlib

from .variables import Variables

PORT_VARIABLES = ("BRINGUP_PORT", "JAX_COORDINATOR_PORT")

# As jax: above the ephemeral ports of Linux, so that no outgoing connection of the host happens to hold it.
_FIRST = 61440
_COUNT = 4096


def derived_port(number: int) -> int:
    """Return the port of a job by its number, `number % 4096 + 61440` as in jax."""
    return _FIRST + number % _COUNT


def named_port(text: str) -> int:
    """Return the port of a job by a text that all its clients know, and no other job of their hosts."""
    return derived_port(zlib.crc32(text.encode()))


def given_port(variables: Variables) -> int | None:
    """Return the port that the environment asks for; `None` where it does not.

    Raises:
        ConfigurationError: it is no port.
    """
    name = variables.first(*PORT_VARIABLES)
    return None if name is None else variables.integer(name, least=1, most=65535)


def coordinator_port(variables: Variables, derived: int) -> int:
    """Return the port that the environment asks for, or else the derived one.

    Raises:
        ConfigurationError: it is no port.
    """
    given = given_port(variables)
    return derived if given is None else given


def origin(host: str, variables: Variables, derived_from: str | None = None) -> str:
    """Return the variables that an address comes from, whose port is that of `coordinator_port`.

    Args:
        host: the variable that gave the host.
        variables: of the environment.
        derived_from: the variable that the port derives from, where none gives it; `None` for a fixed port.
    """
    port = variables.first(*PORT_VARIABLES) or derived_from
    return host if port is None else f"{host}, {port}"
