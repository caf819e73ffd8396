"""Comparison of the clients' reports in the demo, with each other and with the launcher's facts. Pure."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from ...runtime.machines.id_ranges import format_ids

# What every client must say alike.
_SHARED = (
    "job_id",
    "job_name",
    "num_clients",
    "jobs",
    "device_type",
    "core_ids",
    "devices",
    "topology",
    "members",
    "all_reduce",
)
_VALUE_CHARACTERS_MAX = 60


def disagreements(reports: Sequence[Mapping[str, Any]], pids: Sequence[int], addresses: Sequence[str]) -> list[str]:
    """Return a sentence for each fact in which a client's report differs from another's, or from the expected one.

    Args:
        reports: what each client says, in client order; see `demo_client.describe`.
        pids: the process that was started as each client.
        addresses: the address that was given to each client.
    """
    found = [text for name in _SHARED for text in _dissent(name, reports)]
    for client_id, report in enumerate(reports):
        expected = _expected(client_id, report, pids, addresses)
        found += [
            f"client {client_id} is at odds with what must be so: {difference}"
            for name, value in expected.items()
            if (difference := _first_difference(name, _held(name, report), value))
        ]
    return found


def _dissent(name: str, reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say who is at odds with the largest group of clients that agree, and where."""
    groups: dict[str, list[int]] = defaultdict(list)
    for client_id, report in enumerate(reports):
        groups[json.dumps(report[name])].append(client_id)
    ranked = sorted(groups.values(), key=lambda ids: (-len(ids), ids))
    most, *others = ranked
    return [
        f"{_clients(ids)} {'disagrees' if len(ids) == 1 else 'disagree'} with {_clients(most)}: "
        f"{_first_difference(name, reports[ids[0]][name], reports[most[0]][name])}"
        for ids in others
    ]


def _expected(
    client_id: int, report: Mapping[str, Any], pids: Sequence[int], addresses: Sequence[str]
) -> dict[str, Any]:
    number = len(pids)
    devices = report["devices"]
    return {
        "client_id": client_id,
        "number of members": number,
        "pids of the members": list(pids),
        "jobs": list(addresses),
        "all_reduce": [number, number * (number + 1) // 2, len(devices)],
        "core_ids": [device["core_id"] for device in devices],
        "number of different core ids": len(devices),
        "local_device_ids": [device["id"] for device in devices if device["client_id"] == client_id],
    }


def _held(name: str, report: Mapping[str, Any]) -> Any:
    match name:
        case "number of members":
            return len(report["members"])
        case "pids of the members":
            return [member["pid"] for member in report["members"]]
        case "number of different core ids":
            return len(set(report["core_ids"]))
    return report[name]


def _first_difference(path: str, one: Any, other: Any) -> str:
    """Return where two values differ first, and how; empty where they do not."""
    if one == other:
        return ""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return next(
            text
            for index, pair in enumerate(zip(one, other, strict=True))
            if (text := _first_difference(f"{path}[{index}]", *pair))
        )
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return next(text for key in one if (text := _first_difference(f"{path}.{key}", one[key], other[key])))
    return f"{path} is {_shown(one)}, not {_shown(other)}"


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _VALUE_CHARACTERS_MAX else f"{text[:_VALUE_CHARACTERS_MAX]}..."


def _clients(ids: Sequence[int]) -> str:
    return f"{'client' if len(ids) == 1 else 'clients'} {format_ids(ids)}"
