"""The journals of clients that ran `kv_history_client.py`, as one history."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .linearizability import (
    CompareAndSet,
    Delete,
    Get,
    History,
    Increment,
    List,
    Operation,
    Refused,
    Result,
    Set,
    TryGet,
)


def history_of(journals: Iterable[Path]) -> History:
    """Return the clients' calls in the order of events; a call without an end may have had its effect.

    Of what happened at the same time begins come first, so that it is taken for concurrent.
    """
    lines = [(journal.name, json.loads(line)) for journal in journals for line in journal.read_text().splitlines()]
    history = History()
    numbers: dict[tuple[str, int], int] = {}
    for client, line in sorted(lines, key=lambda each: (each[1]["at"], "ended" in each[1])):
        if "began" in line:
            numbers[client, line["began"]] = history.invoke(client, _operation(line["call"], line["arguments"]))
        else:
            number = numbers[client, line["ended"]]
            history.complete(number, _result(history.calls[number].operation, line))
    return history


def _operation(name: str, arguments: list[Any]) -> Operation:
    match name, arguments:
        case "Set", [key, value, overwrite]:
            return Set(key, value.encode(), overwrite)
        case "CompareAndSet", [key, expected, value]:
            return CompareAndSet(key, None if expected is None else expected.encode(), value.encode())
        case "Increment", [key, by]:
            return Increment(key, by)
    kinds: dict[str, type[Get | TryGet | Delete | List]] = {
        "Get": Get,
        "TryGet": TryGet,
        "Delete": Delete,
        "List": List,
    }
    return kinds[name](*arguments)


def _result(operation: Operation, line: dict[str, Any]) -> Result:
    if line.get("refused"):
        return Refused()
    result = line["result"]
    if isinstance(operation, List):
        return {key: value.encode() for key, value in result.items()}
    return result.encode() if isinstance(result, str) else result  # type: ignore[no-any-return]
