"""The demo notices every client that is at odds with the others, or with what must be so."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from bringup.commands.demo.agreement import disagreements

ADDRESSES = ("127.0.0.1:9000", "127.0.0.1:9001", "127.0.0.1:9002")
PIDS = (100, 101, 102)
CORE_IDS = (4, 1, 3, 0, 5, 2)

Report = dict[str, Any]


def reports() -> list[Report]:
    devices = [
        {"id": row, "client_id": row // 2, "core_id": core_id, "location": [row, 0, 0, 0]}
        for row, core_id in enumerate(CORE_IDS)
    ]
    return [
        {
            "client_id": client_id,
            "num_clients": 3,
            "job_id": "ab",
            "job_name": "worker",
            "jobs": list(ADDRESSES),
            "device_type": "SIM",
            "core_ids": list(CORE_IDS),
            "devices": copy.deepcopy(devices),
            "local_device_ids": [2 * client_id, 2 * client_id + 1],
            "topology": {"mesh_shape": [6, 1, 1, 1]},
            "members": [{"client_id": index, "pid": pid} for index, pid in enumerate(PIDS)],
            "all_reduce": [3, 6, 6],
        }
        for client_id in range(3)
    ]


def test_clients_that_agree() -> None:
    assert disagreements(reports(), PIDS, ADDRESSES) == []


def change_core_id(report: Report) -> None:
    report["core_ids"][2] = report["devices"][2]["core_id"] = 9


def change_topology(report: Report) -> None:
    report["topology"] = None


def change_job_id(report: Report) -> None:
    report["job_id"] = "cd"


def lose_a_member(report: Report) -> None:
    del report["members"][1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (change_core_id, "client 1 disagrees with clients 0, 2: core_ids[2] is 9, not 3"),
        (change_topology, 'client 1 disagrees with clients 0, 2: topology is null, not {"mesh_shape": [6, 1, 1, 1]}'),
        (change_job_id, 'client 1 disagrees with clients 0, 2: job_id is "cd", not "ab"'),
        (lose_a_member, "client 1 is at odds with what must be so: number of members is 2, not 3"),
    ],
)
def test_who_is_alone_is_named_with_the_first_difference(change: Callable[[Report], None], said: str) -> None:
    changed = reports()
    change(changed[1])
    assert said in disagreements(changed, PIDS, ADDRESSES)


def test_what_all_have_wrong_alike_is_noticed() -> None:
    changed = reports()
    for report in changed:
        report["all_reduce"] = [3, 6, 5]
    assert disagreements(changed, PIDS, ADDRESSES) == [
        f"client {client_id} is at odds with what must be so: all_reduce[2] is 5, not 6" for client_id in range(3)
    ]


def test_a_process_that_is_not_the_one_that_was_started() -> None:
    found = disagreements(reports(), (100, 999, 102), ADDRESSES)
    assert found[0] == "client 0 is at odds with what must be so: pids of the members[1] is 101, not 999"


def test_a_core_id_that_is_there_twice() -> None:
    changed = reports()
    for report in changed:
        report["core_ids"][5] = report["devices"][5]["core_id"] = 4
    found = disagreements(changed, PIDS, ADDRESSES)
    assert found[0] == "client 0 is at odds with what must be so: number of different core ids is 5, not 6"


def test_long_values_are_cut() -> None:
    changed = reports()
    changed[0]["jobs"] = ["x" * 1000]
    assert max(map(len, disagreements(changed, PIDS, ADDRESSES))) < 250
