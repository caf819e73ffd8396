"""Lines of JSON that come in pieces."""

from __future__ import annotations

import pytest

from bringup.processes.json_lines import JsonLines, json_line


@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_values_come_out_however_they_are_cut(size: int) -> None:
    values = [{"a": "line\nbreak"}, [1, 2], "é", None]
    data = b"".join(map(json_line, values))
    lines = JsonLines()
    found = [value for at in range(0, len(data), size) for value in lines.feed(data[at : at + size])]
    assert found == values


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(ValueError, match="Expecting value"):
        list(JsonLines().feed(b"Traceback\n"))
