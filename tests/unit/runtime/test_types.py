"""The public records, as programs use them: compared, kept in sets, copied, stored, matched."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

import bringup

RECORDS = [
    bringup.Span("connect", 0.0, 1.5, 3),
    bringup.KeyChange("a/b", b"value", 7),
    bringup.KeyChange("a/b", None, 8),
    bringup.Health(ok=False, detail="hot"),
]


@pytest.mark.parametrize("record", RECORDS)
def test_a_record_is_a_frozen_dataclass(record: Any) -> None:
    assert {record, copy.copy(record), copy.deepcopy(record), pickle.loads(pickle.dumps(record))} == {record}
    assert dataclasses.replace(record) == record
    name = type(record).__match_args__[0]
    assert list(dataclasses.asdict(record)) == [field.name for field in dataclasses.fields(record)]
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(record, name, None)


def test_a_change_can_be_matched() -> None:
    match RECORDS[1]:
        case bringup.KeyChange(key, bytes(value)):
            assert (key, value) == ("a/b", b"value")
        case _:
            pytest.fail("no match")


def test_a_span_is_shown_in_a_line_that_can_be_read() -> None:
    span = bringup.Span("connect", 0.0, 0.012345678901234567, 3)
    assert repr(span) == "Span(name='connect', start=0.000000, duration=0.012346, client_id=3)"
