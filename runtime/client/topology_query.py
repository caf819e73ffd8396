"""Queries for the topology of a job, from processes that take no part in it: the question and its answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np

from ...errors import BringupError, ConfigurationError
from ...transport.addresses import Address
from ...transport.ports import ConnectionClosedError, Network
from ...transport.wire.messages import PROTOCOL_VERSION, Refused, TopologyQuery, TopologyReply
from ..machines.peer.events import Up

if TYPE_CHECKING:
    from ...devices.topology.topology import Topology

_LOCATION = np.dtype(("<i4", (4,)))
"""x, y, z and core of a device, as they are sent."""


def topology_reply(up: Up | None, job_name: str) -> TopologyReply:
    """Return the answer of a job's coordinator, which is `up` or not yet."""
    if up is None:
        return TopologyReply((), b"", f"job {job_name!r} is not up yet")
    table = up.table
    if table.locations is None:
        return TopologyReply((), b"", f"the devices of job {job_name!r} have no location")
    return TopologyReply(tuple(table.counts.tolist()), table.locations.astype(_LOCATION.base).tobytes(), "")


async def ask_topology(network: Network, address: Address, timeout: float) -> Topology:
    """Ask the coordinator on `address` for the topology of its job; `timeout` is in seconds.

    Raises:
        BringupError: nobody answers, or the job has none to tell.
    """
    reasons = ["no answer"]
    try:
        async with asyncio.timeout(timeout):
            connection, _ = await network.connect_coordinator(address, reasons.append)
            try:
                await connection.send(TopologyQuery(PROTOCOL_VERSION))
                reply = await connection.receive()
            finally:
                await connection.close()
    except TimeoutError:
        raise _unanswered(address, f"within {timeout:g} s: {reasons[-1]}") from None
    except ConnectionClosedError as error:
        raise _unanswered(address, f": {error}") from None
    if not isinstance(reply, TopologyReply):
        reason = reply.detail if isinstance(reply, Refused) else "what answers is of another version of bringup"
        raise _unanswered(address, f": {reason}")
    if reply.reason:
        raise ConfigurationError(f"the coordinator on {address} has no topology to tell: {reply.reason}")
    return _topology_of(reply, address)


def _topology_of(reply: TopologyReply, address: Address) -> Topology:
    from ...devices.topology.topology import Topology  # a coordinator answers without it

    num_devices = sum(reply.counts)
    if min(reply.counts, default=0) < 0 or len(reply.locations) != _LOCATION.itemsize * num_devices:
        raise BringupError(
            f"the coordinator on {address} told of clients with {reply.counts} devices, and sent "
            f"{len(reply.locations)} bytes of locations, where each device has {_LOCATION.itemsize}"
        )
    locations = np.frombuffer(reply.locations, _LOCATION).astype(np.int32)
    return Topology.of_locations(np.array(reply.counts, np.int32), locations)


def _unanswered(address: Address, how: str) -> BringupError:
    return BringupError(
        f"the coordinator on {address} did not answer {how.removeprefix(': ')}. "
        "Give the address of client 0 of a job that runs, as its first job address says."
    )
