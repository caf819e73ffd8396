"""The generated module says what the `.proto` says: nobody has a generator at hand to look."""

from __future__ import annotations

import re
from pathlib import Path

from google.protobuf.descriptor import FieldDescriptor

from bringup.devices.topology import protos
from bringup.devices.topology.protos import bringup_topology_pb2

SOURCE = (Path(protos.__file__).parent / "bringup_topology.proto").read_text()


def test_the_generated_module_has_the_fields_of_the_source() -> None:
    declared = re.findall(r"^  (repeated )?int32 (\w+) = (\d+);$", SOURCE, re.MULTILINE)
    message = bringup_topology_pb2.Topology.DESCRIPTOR
    assert len(declared) == SOURCE.count(" = ") - 1  # less that of the syntax
    assert {field.name: field.number for field in message.fields} == {name: int(number) for _, name, number in declared}
    assert {field.type for field in message.fields} == {FieldDescriptor.TYPE_INT32}
    empty = bringup_topology_pb2.Topology()
    lists = {name for repeated, name, _ in declared if repeated}
    assert {field.name for field in message.fields if not isinstance(getattr(empty, field.name), int)} == lists
    assert re.findall(r"^message (\w+)", SOURCE, re.MULTILINE) == [message.name]
    assert f"package {message.file.package};" in SOURCE
