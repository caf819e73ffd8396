"""The sources of `bringup topology`: a job, a file, or a slice by name or by shape."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from ...devices.sim.slice import SimSlice, SliceShape
from ...devices.topology.topology import Topology
from ...devices.tpu.slices import TpuSlice
from ...errors import ConfigurationError, TopologyError
from ...runtime.configuration.handed_tokens import HANDED
from ...transport.addresses import Address

_ANSWER_TIMEOUT = 5.0
"""Seconds for the coordinator of a job to answer, which takes it milliseconds."""


def of_job(text: str, wrap: str) -> Topology:
    """The topology of the job whose coordinator listens on `text`, `host:port`.

    Raises:
        ConfigurationError: `text` is no address, or the job has no topology.
        BringupError: no coordinator answers there.
    """
    from ...runtime.client.topology_query import ask_topology
    from ...runtime.configuration.options import option_settings
    from ...runtime.configuration.security import find_security
    from ...transport.credentials import credentials_of
    from ...transport.network import GrpcNetwork

    try:
        address = Address.parse(text)
    except ValueError as error:
        raise ConfigurationError(f"--job={text!r} is not the host:port of a coordinator: {error}") from None
    remote = "" if address.is_loopback else f"--job={text!r} is not on this machine"
    security = find_security(option_settings(None, {}, os.environ), os.environ, HANDED, remote=remote)
    network = GrpcNetwork(own=None, loopback=False, credentials=credentials_of(security.secret, None, security.source))
    found = asyncio.run(ask_topology(network, address, _ANSWER_TIMEOUT))
    return _wrapped(found, wrap)


def of_bytes(data: bytes, name: str, wrap: str) -> Topology:
    """The topology in a file.

    Args:
        data: JSON of `Topology.to_json()` or of `bringup demo --json`, or a serialized `tpu.TopologyProto`.
        name: Of the file, for errors.
        wrap: The axes that wrap around; empty for those of the file.

    Raises:
        ConfigurationError: the file holds none of these.
    """
    try:
        found = Topology.from_json(_described(data)) if data.lstrip()[:1] == b"{" else Topology.from_proto(data)
    except (ValueError, TopologyError, RecursionError) as error:
        raise ConfigurationError(
            f"{name} holds no topology: {error}. Give a file of Topology.to_json(), of `bringup demo --json`, or of a "
            "serialized tpu.TopologyProto."
        ) from None
    return _wrapped(found, wrap)


def _wrapped(found: Topology, wrap: str) -> Topology:
    return Topology(found.extents, found.device_coordinates, wrap=wrap) if wrap else found


def _described(data: bytes) -> Any:
    described = json.loads(data)
    if "topology" not in described:
        return described
    if described["topology"] is None:
        raise ValueError("its devices have no location")
    return described["topology"]


def of_slice(name: str, clients: int | None, wrap: str) -> Topology:
    """The topology of a slice of TPUs, with one client for each host where `clients` is `None`.

    Raises:
        ConfigurationError: there is no such slice, or its chips do not divide over the clients.
    """
    real = TpuSlice.parse(name, "--slice")
    around = "".join(axis for axis, wraps in zip("xyz", real.wrap, strict=True) if wraps)
    return _of(SliceShape.of_slice(real), clients, wrap or around, "--slice")


def of_shape(text: str, clients: int | None, wrap: str) -> Topology:
    """The topology of a simulated slice, with one client for each host of 2x2x1 chips where `clients` is `None`.

    Raises:
        ConfigurationError: the shape is malformed, or its chips do not divide over the clients.
    """
    return _of(SliceShape.parse(text, "--sim"), clients, wrap, "--sim")


def _of(shape: SliceShape, clients: int | None, wrap: str, origin: str) -> Topology:
    part = SimSlice(shape, clients or shape.num_blocks or 1, origin=origin)
    coordinates = [part.locations(client) for client in range(part.num_clients)]
    return Topology([shape.x, shape.y, shape.z, shape.cores], coordinates, wrap=wrap)
