"""Encoding and decoding of TensorFlow's `tpu.TopologyProto`. Pure."""

from __future__ import annotations

import numpy as np
from google.protobuf.message import DecodeError

from ...errors import TopologyError
from .axes import Extents, Int32Array, Int64Array
from .protos import bringup_topology_pb2

_FORM = "a serialized tpu.TopologyProto"


def encode(extents: Extents, counts: Int64Array, coordinates: Int32Array) -> bytes:
    """Return the serialized message.

    Raises:
        TopologyError: the clients have unequal numbers of devices, which the form cannot say.
    """
    if (counts != counts[0]).any():
        fewest, most = int(counts.argmin()), int(counts.argmax())
        raise TopologyError(
            f"{_FORM} has one number of devices for all clients, but client {fewest} has {counts[fewest]} and client "
            f"{most} has {counts[most]}: use to_json()"
        )
    message = bringup_topology_pb2.Topology(
        mesh_shape=extents,
        num_tasks=len(counts),
        num_tpu_devices_per_task=int(counts[0]),
        device_coordinates=coordinates.ravel().tolist(),
    )
    return message.SerializeToString(deterministic=True)


def decode(data: bytes) -> tuple[list[int], Int32Array]:
    """Return the mesh shape and the coordinates, int32 `[num_clients, devices_per_client, 4]`, neither checked further.

    Raises:
        TopologyError: the bytes are no such message, or its numbers do not fit together.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TopologyError(f"{data!r:.80} is no bytes of {_FORM}")
    try:
        message = bringup_topology_pb2.Topology.FromString(bytes(data))
    except (DecodeError, TypeError) as error:
        raise TopologyError(f"the {len(data)} bytes are not {_FORM}: {error}") from None
    tasks, per_task = message.num_tasks, message.num_tpu_devices_per_task
    coordinates = np.array(message.device_coordinates, np.int32)
    if min(tasks, per_task) < 1 or coordinates.size != tasks * per_task * 4:
        raise TopologyError(
            f"{_FORM} has num_tasks={tasks}, num_tpu_devices_per_task={per_task} and {coordinates.size} numbers in "
            "device_coordinates: they must be at least 1, 1, and 4 for each device"
        )
    return list(message.mesh_shape), coordinates.reshape(tasks, per_task, 4)
