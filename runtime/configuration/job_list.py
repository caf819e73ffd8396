"""The list of a job's addresses, one per client in client order, as users write it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...errors import ConfigurationError
from ...transport.addresses import Address
from .settings import Setting

_BNS_PREFIX = "/bns/"
_BNS_NAME = re.compile(r"/bns/[!-~]{1,1000}")
_BNS_TASK_ID = re.compile(r"[0-9]{1,10}")


def is_bns(address: str) -> bool:
    """Whether it is a BNS name, which only a resolver of its own can turn into `host:port`."""
    return address.startswith(_BNS_PREFIX)


def as_jobs(setting: Setting) -> tuple[str, ...]:
    """Read the list, and write every address in the one way we write it.

    Args:
        setting: comma-separated text, or a sequence of text; blanks around entries do not matter.

    Returns:
        `host:port` per client; or BNS names as they came, sorted by task id.

    Raises:
        ConfigurationError: an entry is empty, malformed or there twice, or BNS names are not sorted.
    """
    entries = [entry.strip() for entry in _entries(setting)]
    for position, entry in enumerate(entries):
        if not entry:
            raise _error(setting, position, "is empty: is there a comma too many?")
    if any(is_bns(entry) for entry in entries):
        jobs = _bns_names(setting, entries)
    else:
        jobs = tuple(_address(setting, position, entry) for position, entry in enumerate(entries))
    _refuse_duplicates(setting, jobs)
    return jobs


def _entries(setting: Setting) -> Sequence[str]:
    value = setting.value
    if isinstance(value, str):
        if not value.strip():
            raise setting.error("is empty: give one host:port per client, or leave it out")
        if ";" in value:
            raise setting.error("has a semicolon in it: separate the addresses by commas")
        return value.split(",")
    if not isinstance(value, Sequence) or isinstance(value, bytes | bytearray | memoryview):
        raise setting.error(f"must be comma-separated text or a sequence of text, not a {type(value).__name__}")
    if not value:
        raise setting.error("is empty: give one host:port per client, or leave it out")
    for position, entry in enumerate(value):
        if not isinstance(entry, str):
            raise _error(setting, position, f"is not text, but {entry!r}")
    return value


def _address(setting: Setting, position: int, entry: str) -> str:
    try:
        address = Address.parse(entry)
    except ValueError as error:
        raise _error(setting, position, f"is not an address: {error}") from None
    if address.is_wildcard:
        raise _error(setting, position, f"is {entry!r}, which means every interface: give one that others can dial")
    return str(address)


def _bns_names(setting: Setting, entries: list[str]) -> tuple[str, ...]:
    task_ids = [_bns_task_id(setting, position, entry) for position, entry in enumerate(entries)]
    if task_ids != sorted(task_ids):
        raise ConfigurationError(
            f"Unexpected {setting.name} content {','.join(entries)!r:.200}. Sort entries in {setting.name} by task id, "
            "for their order gives the clients their ids."
        )
    return tuple(entries)


def _bns_task_id(setting: Setting, position: int, entry: str) -> int:
    if not is_bns(entry):
        raise _error(setting, position, f"is {entry!r}, among BNS names: give either BNS names or host:port, not both")
    task_id = entry.rpartition("/")[2].partition(":")[0]
    if not _BNS_NAME.fullmatch(entry) or not _BNS_TASK_ID.fullmatch(task_id):
        raise _error(
            setting, position, f"is {entry!r}, which does not end with an integer task id, as /bns/cell/7 does"
        )
    return int(task_id)


def _refuse_duplicates(setting: Setting, jobs: tuple[str, ...]) -> None:
    seen: dict[str, int] = {}
    for position, address in enumerate(jobs):
        first = seen.setdefault(address, position)
        if first != position:
            raise setting.error(
                f"has {address!r} twice, at positions {first} and {position} (counted from 0, as client ids are): "
                "every client needs an address of its own"
            )


def _error(setting: Setting, position: int, complaint: str) -> ConfigurationError:
    return setting.error(f"cannot be read: the entry at position {position} (counted from 0) {complaint}")
