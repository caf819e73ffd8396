"""The tables of the demo: clients, devices, topology and timeline of a job that came up."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, OverflowMethod, RenderableType
from rich.table import Table
from rich.text import Text

from ..prefixed_output import CLIENT_COLOURS

_DEVICES_SHOWN_MAX = 40
_DEVICES_SHOWN_OF_MORE = (16, 4)
_COLUMNS_FOR_ALL = 100
_CLIENTS_SHOWN = 64
_COLUMNS_SHOWN = 32
_ROWS_SHOWN = 16
_LAYERS_SHOWN = 4


def print_job(result: Mapping[str, Any], console: Console) -> None:
    """Print the object that `demo --json` prints, for a person."""
    clients = "1 client" if result["num_clients"] == 1 else f"{result['num_clients']} clients"
    devices = f"{len(result['devices'])} {result['device_type']} device{'s' if len(result['devices']) > 1 else ''}"
    console.print(Text(f"Job {result['job_name']!r}, id {result['job_id']}: {clients}, {devices}", style="bold"))
    if result["simulated"]:
        console.print(Text("The devices are SIMULATED: they do not exist.", style="bold yellow"))
    for part in (_clients(result), devices_table(result, console.width), _topology(result), _timeline(result)):
        console.print()
        console.print(part)
    console.print()
    console.print(_summary(result), soft_wrap=True, markup=False)


def _clients(result: Mapping[str, Any]) -> Table:
    table = _table("Clients", "client", "address", "host", "process", "devices", "up after")
    clients = result["clients"]
    for client in clients[:_CLIENTS_SHOWN]:
        table.add_row(
            _client(client["client_id"]),
            Text(client["address"]),
            Text(client["hostname"]),
            str(client["pid"]),
            str(client["num_devices"]),
            _seconds(client["up_after"]),
        )
    if len(clients) > _CLIENTS_SHOWN:
        table.add_row("...", f"and {len(clients) - _CLIENTS_SHOWN} more")
    return table


def devices_table(result: Mapping[str, Any], width: int) -> Table:
    """Return the table of a result's devices; where `width` is small, without the columns that the names imply."""
    devices = result["devices"]
    kinds = {device["kind"] for device in devices}
    columns = ["device", "client", "core id", "x, y, z, core", "kind", "name"]
    title = f"Devices{' (simulated)' if result['simulated'] else ''}"
    if width < _COLUMNS_FOR_ALL and len(kinds) == 1:
        columns = [column for column in columns if column not in ("client", "kind")]
        title += f", {kinds.pop()}"
    table = _table(title, *columns)
    if width < _COLUMNS_FOR_ALL:
        table.box, table.pad_edge, table.padding = SIMPLE_HEAD, False, 0
    first, last = _DEVICES_SHOWN_OF_MORE if len(devices) > _DEVICES_SHOWN_MAX else (len(devices), 0)
    for device in devices[:first]:
        table.add_row(*_device(device, columns))
    if first < len(devices):
        more = {"device": "...", "x, y, z, core": f"and {len(devices) - first - last} more"}
        table.add_row(*(more.get(column, "") for column in columns))
        for device in devices[-last:]:
            table.add_row(*_device(device, columns))
    return table


def _device(device: Mapping[str, Any], columns: Sequence[str]) -> list[RenderableType]:
    location = device["location"]
    cells: dict[str, RenderableType] = {
        "device": str(device["id"]),
        "client": _client(device["client_id"]),
        "core id": str(device["core_id"]),
        "x, y, z, core": "-" if location is None else ", ".join(map(str, location)),
        "kind": Text(device["kind"]),
        "name": Text(device["name"], style=_style(device["client_id"])),
    }
    return [cells[column] for column in columns]


def _topology(result: Mapping[str, Any]) -> RenderableType:
    topology = result["topology"]
    if topology is None:
        return Text(f"Topology: none, as {result['device_type']} devices have no location.")
    x, y, z, cores = topology["mesh_shape"]
    title = Text(f"Topology: mesh shape [{x}, {y}, {z}, {cores}]; which client holds the chip at x, y", style="italic")
    return Group(title, *topology_picture(topology))


def topology_picture(topology: Mapping[str, Any]) -> list[Text]:
    """Draw a topology: for each z a row for each y, in which the clients of the chips stand by x."""
    columns, rows, layers, _ = topology["mesh_shape"]
    owner = {
        (x, y, z): client_id
        for client_id, coordinates in enumerate(topology["device_coordinates"])
        for x, y, z, _ in coordinates
    }
    width = max(len(str(max(owner.values()))), len(str(min(columns, _COLUMNS_SHOWN) - 1)))
    lines = []
    for z in range(min(layers, _LAYERS_SHOWN)):
        if layers > 1:
            lines.append(Text(f"z = {z}"))
        lines.append(Text("    y\\x " + _row(range(columns), width)))
        for y in range(min(rows, _ROWS_SHOWN)):
            cells = Text(f"    {y:>3} ")
            for x in range(min(columns, _COLUMNS_SHOWN)):
                client_id = owner.get((x, y, z))
                cells.append(f" {'.' if client_id is None else client_id:>{width}}", _style(client_id))
            lines.append(cells)
    if columns > _COLUMNS_SHOWN or rows > _ROWS_SHOWN or layers > _LAYERS_SHOWN:
        lines.append(Text("    (not all of it is shown)"))
    return lines


def _row(values: Sequence[int], width: int) -> str:
    return "".join(f" {value:>{width}}" for value in values[:_COLUMNS_SHOWN])


def _timeline(result: Mapping[str, Any]) -> Table:
    table = _table("Timeline: how long each phase took", "phase", "begins after", "min", "median", "max", "slowest")
    for phase in result["timeline"]:
        table.add_row(
            phase["phase"],
            _seconds(phase["start"]),
            *(_seconds(phase[column]) for column in ("min", "median", "max")),
            _client(phase["slowest_client"]),
        )
    return table


def phases(timelines: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Combine the clients' timelines: the durations of each phase on all clients, in order of the median starts."""
    spans: dict[str, list[tuple[float, float, int]]] = {}
    for client_id, timeline in enumerate(timelines):
        for span in timeline:
            spans.setdefault(span["phase"], []).append((span["start"], span["duration"], client_id))
    table = [
        {
            "phase": phase,
            "start": statistics.median(start for start, _, _ in of_clients),
            "min": min(duration for _, duration, _ in of_clients),
            "median": statistics.median(duration for _, duration, _ in of_clients),
            "max": max(duration for _, duration, _ in of_clients),
            "slowest_client": max(of_clients, key=lambda span: span[1])[2],
        }
        for phase, of_clients in spans.items()
    ]
    return sorted(table, key=lambda row: row["start"])


def _summary(result: Mapping[str, Any]) -> str:
    reduced = f"all_reduce of [1, client id + 1, devices] gave {result['all_reduce']}."
    took = f"up {_seconds(result['seconds'])} after the release of all at once."
    if result["num_clients"] == 1:
        return f"{reduced}\nThe only client was {took}"
    verdict = "All clients agree on all of the above." if result["agree"] else "The clients DISAGREE."
    return f"{reduced} {verdict}\nThe last client was {took}"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="italic")
    for column in columns:
        numeric = column in ("client", "device", "core id", "devices", "process", "slowest")
        folds = column == "name"
        overflow: OverflowMethod = "fold" if folds else "ellipsis"
        table.add_column(column, justify="right" if numeric else "left", no_wrap=not folds, overflow=overflow)
    return table


def _client(client_id: int) -> Text:
    return Text(str(client_id), style=_style(client_id))


def _style(client_id: int | None) -> str:
    return "dim" if client_id is None else CLIENT_COLOURS[client_id % len(CLIENT_COLOURS)]


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.1f} ms"
