"""Checks of the arguments of a system's methods: whole numbers and seconds, of any library's types. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Real

from ...devices.whole_numbers import as_whole_number
from ...errors import ConfigurationError

_INTEGER_MAX = 2**63 - 1
_CLIENT_ID_MAX = 2**32 - 1
SECONDS_MAX = 1e9
"""Timers of event loops overflow not far beyond it; it is 30 years."""


def whole_number(value: object) -> int | None:
    """Return a whole number of 64 bits, an `int` or another integer type such as numpy's; no bool.

    `None` where it is something else.
    """
    number = as_whole_number(value)
    return None if number is None or abs(number) > _INTEGER_MAX else number


def step_of(call: str, step: object) -> int:
    """Return the step of a program, checked.

    Raises:
        ConfigurationError: it is no such number; names it, and the call that it was given to.
    """
    number = whole_number(step)
    if number is None or not 0 <= number < _INTEGER_MAX:
        raise ConfigurationError(f"{call}(step={step!r}): a step is a whole number from 0 to {_INTEGER_MAX - 1}")
    return number


def seconds(value: object) -> float | None:
    """Return a number of seconds, any but NaN, as a float; `None` where it is no such number."""
    number = real_number(value)
    return None if number is None or math.isnan(number) else number


def real_number(value: object) -> float | None:
    """Return a real number of any library's type as a float, one that is too large as infinity; `None` for others."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]  # a whole number or a fraction


def timeout_of(what: str, timeout: object) -> float | None:
    """Return a time-out in seconds; `None` for ever.

    Args:
        what: what has the time-out, as `barrier 'a'`.
        timeout: what was given.

    Raises:
        ConfigurationError: it is no number, or negative; names it.
    """
    if timeout is None:
        return None
    number = seconds(timeout)
    if number is None or number < 0:
        raise ConfigurationError(
            f"timeout={timeout!r} of {what} is not a number of seconds, 0 or more: give one, or None to wait for as "
            "long as the job lives"
        )
    return number if number <= SECONDS_MAX else None


def client_set(what: str, client_ids: object) -> list[int]:
    """Return a set of client ids, sorted.

    Raises:
        ConfigurationError: they are no client ids, there is none, or one is double; names them.
    """
    given = list(client_ids) if isinstance(client_ids, Iterable) else [None]
    ids = [number for number in map(as_whole_number, given) if number is not None and 0 <= number <= _CLIENT_ID_MAX]
    if len(ids) < len(given):
        shown = given if isinstance(client_ids, Iterable) else client_ids
        raise ConfigurationError(f"client_ids={shown!r} of {what} is not a sequence of client ids")
    if not ids or len(set(ids)) < len(ids):
        raise ConfigurationError(f"client_ids={ids} of {what}: give at least one client, and each once")
    return sorted(ids)
