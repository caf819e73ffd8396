from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Topology(_message.Message):
    __slots__ = ["device_coordinates", "mesh_shape", "num_tasks", "num_tpu_devices_per_task"]
    DEVICE_COORDINATES_FIELD_NUMBER: _ClassVar[int]
    MESH_SHAPE_FIELD_NUMBER: _ClassVar[int]
    NUM_TASKS_FIELD_NUMBER: _ClassVar[int]
    NUM_TPU_DEVICES_PER_TASK_FIELD_NUMBER: _ClassVar[int]
    device_coordinates: _containers.RepeatedScalarFieldContainer[int]
    mesh_shape: _containers.RepeatedScalarFieldContainer[int]
    num_tasks: int
    num_tpu_devices_per_task: int
    def __init__(self, mesh_shape: _Optional[_Iterable[int]] = ..., num_tasks: _Optional[int] = ..., num_tpu_devices_per_task: _Optional[int] = ..., device_coordinates: _Optional[_Iterable[int]] = ...) -> None: ...
