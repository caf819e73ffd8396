"""The variables of one environment, read on behalf of a resolver: errors name the variable and the remedy. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..errors import ConfigurationError
from ..transport.addresses import parse_host

# A slip (a port in the place of a number of processes) must not make every client allocate for it.
PROCESSES_MAX = 1 << 20

_ESCAPE = "to run this process alone, pass resolver='none'"


class Variables:
    """The variables of an environment; an empty one counts as not set.

    Args:
        environment: the environment variables.
        reader: the name of the resolver.
        remedy: what to do where one is missing or wrong, for errors.
    """

    def __init__(self, environment: Mapping[str, str], reader: str, remedy: str) -> None:
        self.environment = environment
        self._reader = reader
        self._remedy = remedy

    def get(self, name: str) -> str | None:
        """Return a variable without the blanks around it; `None` where it is not set."""
        return self.environment.get(name, "").strip() or None

    def first(self, *names: str) -> str | None:
        """Return the first name that is set; `None` where none is."""
        return next((name for name in names if self.get(name) is not None), None)

    def text(self, name: str) -> str:
        """Return a variable that must be set.

        Raises:
            ConfigurationError: it is not.
        """
        value = self.get(name)
        if value is None:
            raise self.missing(name)
        return value

    def integer(self, name: str, *, least: int = 0, most: int = PROCESSES_MAX) -> int:
        """Return a variable that must be a whole number in `least..most`.

        Raises:
            ConfigurationError: it is not set, or something else.
        """
        text = self.text(name)
        if not re.fullmatch(r"[+-]?[0-9]{1,20}", text):  # int() also takes "1_0" and digits of other scripts
            raise self.wrong(name, "is not a whole number")
        number = int(text)
        if not least <= number <= most:
            raise self.wrong(name, f"is not in {least}..{most}")
        return number

    def rank(self, name: str, size: int, size_name: str) -> int:
        """Return a variable that must be a rank below `size`, which `size_name` gave.

        Raises:
            ConfigurationError: it is not set, or something else.
        """
        number = self.integer(name)
        if number >= size:
            raise self.wrong(name, f"is not below {size_name}={size}")
        return number

    def host(self, name: str) -> str:
        """Return a variable that must be a host name or IP address, in its normal form.

        Raises:
            ConfigurationError: it is not set, or something else.
        """
        value = self.text(name)
        try:
            return parse_host(value)
        except ValueError as error:
            raise self.wrong(name, f"is not a host name or IP address: {error}") from None

    def missing(self, name: str) -> ConfigurationError:
        """Return the error for a variable that is not set."""
        state = "empty" if name in self.environment else "not set"
        return ConfigurationError(
            f"{name} is {state}, and resolver {self._reader!r} needs it: {self._remedy}; {_ESCAPE}"
        )

    def wrong(self, name: str, complaint: str) -> ConfigurationError:
        """Return the error for the value of a variable."""
        return self.refusal(f"{name}={self.environment.get(name, '')!r:.300} {complaint}")

    def refusal(self, complaint: str) -> ConfigurationError:
        """Return an error with the remedy."""
        return ConfigurationError(f"{complaint} (resolver {self._reader!r}): {self._remedy}; {_ESCAPE}")


def is_set(environment: Mapping[str, str], *names: str) -> bool:
    """Whether all of these variables are set and not empty."""
    return all(environment.get(name, "").strip() for name in names)


def shown(environment: Mapping[str, str], *names: str) -> str:
    """Return those of these variables that are set, as people write them."""
    return ", ".join(f"{name}={environment[name].strip()!r:.100}" for name in names if is_set(environment, name))
