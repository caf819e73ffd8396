"""One setting: a value with its origin, so that an error can name both.

A value from the environment is text; one from an argument has a type of its own. The `as_...` functions take either and
give the one type that the rest of the runtime sees.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...devices.whole_numbers import as_whole_number
from ...errors import ConfigurationError
from ...transport.addresses import Address, parse_host
from .validation import SECONDS_MAX, real_number

# float() alone also takes "1_0" and digits of other scripts.
_PLAIN_NUMBER = re.compile(r"[+-]?[0-9a-zA-Z.+-]+")
# A token given where the name of its file is meant, or the number of its descriptor.
_LIKE_TOKEN = re.compile(r"[0-9a-fA-F]{64}")
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


class Origin(enum.Enum):
    """The origin of a value."""

    ENVIRONMENT = "environment"
    ARGUMENT = "argument"
    OPTIONS = "options"
    RESOLVER = "resolver"
    DEFAULT = "default"


class Hidden:
    """A value that no text may show, as that of local variables beside a traceback."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        return HIDDEN


HIDDEN = "<hidden>"
"""Stands for it."""


def revealed(value: object) -> object:
    """Return a value that may be `Hidden`."""
    return value.value if isinstance(value, Hidden) else value


@dataclass(frozen=True, slots=True, repr=False)
class Setting:
    """A value with its name and origin.

    Attributes:
        name: the environment variable or argument.
        value: as it was given; `None` where it was not.
        origin: where it came from.
        secret: never show the value.
    """

    name: str
    value: object
    origin: Origin
    secret: bool = False

    @classmethod
    def from_environ(cls, environ: Mapping[str, str], name: str, *, secret: bool = False) -> Setting:
        """Read one variable; an empty one counts as not set."""
        return cls(name, environ.get(name, "").strip() or None, Origin.ENVIRONMENT, secret)

    @property
    def is_set(self) -> bool:
        """Whether there is a value."""
        return self.value is not None

    @property
    def where(self) -> str:
        """The origin in words: `DTENSOR_JOBS`, `argument jobs`."""
        return self.name if self.origin is Origin.ENVIRONMENT else f"{self.origin.value} {self.name}"

    @property
    def shown(self) -> str:
        """The value for people."""
        return HIDDEN if self.is_hidden else _shown(self.value)

    @property
    def is_hidden(self) -> bool:
        """Whether there is a value for no people: a secret, or a token in the place of its file's name."""
        is_misplaced = "token" in self.name.lower() and _LIKE_TOKEN.search(str(self.value)) is not None
        return self.is_set and (self.secret or is_misplaced)

    def __str__(self) -> str:
        assignment = f"{self.name}={self.shown}"
        return assignment if self.origin is Origin.ENVIRONMENT else f"{assignment} ({self.origin.value})"

    def __repr__(self) -> str:
        return f"<Setting {self}>"  # a generated one would show secrets

    def error(self, complaint: str) -> ConfigurationError:
        """Return an error that names this setting and its value."""
        return ConfigurationError(f"{self} {complaint}")


def as_integer(setting: Setting, meaning: str, *, least: int, most: int) -> int:
    """Read a whole number in `least..most`.

    Args:
        setting: text in decimal, or an integer that is not a bool.
        meaning: completes the sentence "is not ...".
        least: the smallest value allowed.
        most: the largest value allowed.

    Raises:
        ConfigurationError: it is no such number.
    """
    number = _integer(setting, meaning)
    if number < least:
        raise setting.error(f"must be >= {least}: give {meaning}")
    if number > most:
        raise setting.error(f"must be <= {most}: give {meaning}")
    return number


def as_duration(setting: Setting, *, least: float = 0.0) -> float:
    """Read a number of seconds: finite, greater than 0 and not below `least`.

    Raises:
        ConfigurationError: it is no such number.
    """
    seconds = _seconds(setting)
    if not math.isfinite(seconds):
        raise setting.error("must be a finite number of seconds")
    if seconds <= 0:
        raise setting.error("must be greater than 0 seconds")
    if seconds < least:
        raise setting.error(f"must be at least {least:g} seconds: more often there would be time for nothing else")
    if seconds > SECONDS_MAX:
        raise setting.error(f"must be at most {SECONDS_MAX:.0f} seconds")
    return seconds


def as_flag(setting: Setting) -> bool:
    """Read a switch: a bool, or in the environment one of 1, true, yes, on, 0, false, no, off in any case.

    Raises:
        ConfigurationError: it is neither.
    """
    if setting.origin is not Origin.ENVIRONMENT:
        if isinstance(setting.value, bool):
            return setting.value
        raise setting.error(f"is not True or False, but a {type(setting.value).__name__}")
    word = str(setting.value).lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise setting.error("is not a switch: write 1, true, yes or on, or else 0, false, no or off")


def as_choice(setting: Setting, choices: Sequence[str]) -> str:
    """Read one of `choices`, in any case.

    Raises:
        ConfigurationError: it is none of them.
    """
    word = as_text(setting).lower()
    if word not in choices:
        raise setting.error(f"is none of {', '.join(map(repr, choices))}")
    return word


def as_text(setting: Setting) -> str:
    """Read text that is not empty, without the blanks around it.

    Raises:
        ConfigurationError: it is something else.
    """
    if not isinstance(setting.value, str):
        raise setting.error(f"is not text, but of type {type(setting.value).__name__}")
    text = setting.value.strip()
    if not text:
        raise setting.error("is empty: leave it out, or give a value")
    return text


def as_host(setting: Setting) -> str:
    """Read a host name or IP address without a port.

    Raises:
        ConfigurationError: it is something else.
    """
    text = as_text(setting)
    try:
        return parse_host(text)
    except ValueError as error:
        raise setting.error(f"is not a host name or IP address: {error}") from None


def as_address(setting: Setting) -> str:
    """Read `host:port`.

    Raises:
        ConfigurationError: it is something else.
    """
    text = as_text(setting)
    try:
        return str(Address.parse(text))
    except ValueError as error:
        raise setting.error(f"is not an address: {error}") from None


def _integer(setting: Setting, meaning: str) -> int:
    value = setting.value
    if setting.origin is Origin.ENVIRONMENT:
        # int() alone also takes "1_0" and digits of other scripts, and gives up on thousands of digits.
        if not re.fullmatch(r"[+-]?[0-9]{1,20}", str(value)):
            raise setting.error(f"is not {meaning}: it must be a whole number")
        return int(str(value))
    number = as_whole_number(value)
    if number is None:
        raise setting.error(f"is not {meaning}: it must be an int, not a {type(value).__name__}")
    return number


def _seconds(setting: Setting) -> float:
    value = setting.value
    if setting.origin is not Origin.ENVIRONMENT:
        number = real_number(value)
        if number is None:
            raise setting.error(f"is not a number of seconds: it is of type {type(value).__name__}")
        return number
    try:
        if _PLAIN_NUMBER.fullmatch(str(value)):
            return float(str(value))
    except ValueError:
        pass  # such as "e5", which is refused like any other text
    raise setting.error("is not a number of seconds")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:197] + "..."
