"""The demo's picture and its sums."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from bringup.commands.demo.tables import devices_table, phases, topology_picture


def topology(mesh_shape: list[int], *clients: list[list[int]]) -> dict[str, Any]:
    return {"mesh_shape": mesh_shape, "device_coordinates": list(clients)}


def test_a_picture_has_the_client_of_every_chip() -> None:
    drawn = topology_picture(topology([2, 2, 1, 2], [[0, 0, 0, 0], [0, 0, 0, 1]], [[1, 0, 0, 0]], [[1, 1, 0, 1]]))
    assert [line.plain.split() for line in drawn] == [["y\\x", "0", "1"], ["0", "0", "1"], ["1", ".", "2"]]


def test_a_picture_of_layers() -> None:
    drawn = topology_picture(topology([1, 1, 2, 1], [[0, 0, 0, 0]], [[0, 0, 1, 0]]))
    assert [line.plain.strip() for line in drawn][::3] == ["z = 0", "z = 1"]
    assert drawn[-1].plain.split() == ["0", "1"]


def test_a_picture_stays_small_and_says_so() -> None:
    drawn = topology_picture(topology([100, 100, 100, 1], [[x, 0, 0, 0] for x in range(100)]))
    assert len(drawn) < 80
    assert max(len(line.plain) for line in drawn) <= 120
    assert "not all" in drawn[-1].plain


def test_phases_over_the_clients() -> None:
    def span(phase: str, start: float, duration: float) -> dict[str, Any]:
        return {"phase": phase, "start": start, "duration": duration}

    table = phases(
        [
            [span("merge", 3.0, 0.5), span("rendezvous", 0.0, 3.0)],
            [span("merge", 2.0, 0.1), span("rendezvous", 1.0, 1.0)],
            [span("merge", 5.0, 0.2), span("rendezvous", 0.5, 2.0)],
        ]
    )
    assert table == [
        {"phase": "rendezvous", "start": 0.5, "min": 1.0, "median": 2.0, "max": 3.0, "slowest_client": 0},
        {"phase": "merge", "start": 3.0, "min": 0.1, "median": 0.2, "max": 0.5, "slowest_client": 0},
    ]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("task", [3, 1234])
def test_names_are_whole_whatever_the_width_of_the_terminal(width: int, task: int) -> None:
    name = f"/job:worker/replica:0/task:{task}/device:SIM:7"
    device = {"id": 1, "client_id": task, "core_id": 1, "location": [0, 0, 0, 0], "kind": "SIM TPU", "name": name}
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(devices_table({"devices": [device], "simulated": True}, console.width))
    shown = console.export_text()
    assert "SIM TPU" in shown
    assert name in shown
