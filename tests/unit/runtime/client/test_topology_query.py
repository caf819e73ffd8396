"""Replies to topology queries are checked before they become a topology."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bringup.errors import BringupError
from bringup.runtime.client.topology_query import ask_topology, topology_reply
from bringup.transport.addresses import Address
from bringup.transport.wire.messages import TopologyReply

ADDRESS = Address("host-0", 8476)
LOCATIONS = np.array([[0, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0], [1, 0, 0, 1]], np.int32)


class Network:
    """Answers with one message."""

    def __init__(self, told: TopologyReply) -> None:
        self._told = told

    async def connect_coordinator(self, address: Address, report: Any) -> tuple[Any, str]:
        return self, "127.0.0.1"

    async def send(self, message: Any) -> None:
        pass

    async def receive(self) -> TopologyReply:
        return self._told

    async def close(self) -> None:
        pass


async def ask(told: TopologyReply) -> Any:
    return await ask_topology(Network(told), ADDRESS, 10.0)  # type: ignore[arg-type]


async def test_what_is_told_is_what_there_is() -> None:
    up: Any = SimpleNamespace(table=SimpleNamespace(locations=LOCATIONS, counts=np.array([2, 2])))
    topology = await ask(topology_reply(up, "worker"))
    assert topology.device_coordinates.reshape(-1, 4).tolist() == LOCATIONS.tolist()


@pytest.mark.parametrize(
    ("counts", "locations"),
    [
        ((2, 2), LOCATIONS.tobytes()[:-1]),
        ((2, 2), LOCATIONS.tobytes()[:-16]),
        ((2, 3), LOCATIONS.tobytes()),
        ((5, -1), LOCATIONS.tobytes()),
        ((2**40, 2), LOCATIONS.tobytes()),
        ((), LOCATIONS.tobytes()),
    ],
)
async def test_a_table_whose_size_is_wrong_is_refused(counts: tuple[int, ...], locations: bytes) -> None:
    with pytest.raises(BringupError, match=r"host-0:8476 told of clients with .* bytes of locations"):
        await ask(TopologyReply(counts, locations, ""))
