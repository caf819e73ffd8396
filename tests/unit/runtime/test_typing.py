"""The types of the public names, as a type checker and users' editors see them."""

from __future__ import annotations

import re
from pathlib import Path

from mypy import api

from bringup.runtime.configuration.options import OptionOverrides, Options

PROGRAM = """
import bringup, bringup.sync
from bringup import BringupError, PeerFailedError

def on_any(error: BringupError) -> None: ...
def on_peer(error: PeerFailedError) -> None: ...

async def main() -> None:
    await bringup.initialize("CPU", heartbeat_timeout=3, stall_timeout=None, unhealthy_action="fail")
    await bringup.initialize(on_failure="exit")
    await bringup.initialize(on_failure=on_any)
    await bringup.initialize(on_failure=on_peer)
    await bringup.initialize(heartbeat_timeoutt=3)  # wrong
    await bringup.initialize(heartbeat_interval="x")  # wrong
    await bringup.initialize(on_failure="die")  # wrong
    await bringup.initialize(unhealthy_action="explode")  # wrong
    bringup.initialize().client_id  # wrong
    with bringup.initialize(): ...  # wrong
    bringup.sync.initialize(heartbeat_timeoutt=3)  # wrong
    with bringup.sync.initialize(kv_max_bytes=1): ...
"""


def test_mistakes_are_found_before_the_program_runs(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    config = tmp_path / "mypy.ini"
    config.write_text(
        "[mypy]\nstrict = True\n[mypy-bringup.*]\nignore_errors = True\n[mypy-grpc.*,uvloop.*]\n"
        "ignore_missing_imports = True\n"
    )
    output, errors, _ = api.run(["--config-file", str(config), "--cache-dir", str(tmp_path / "cache"), str(program)])
    assert not errors
    complaints = {int(line) for line in re.findall(r"program\.py:(\d+): error", output)}
    wrong = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")}
    assert complaints == wrong, output


def test_every_option_is_a_keyword_argument() -> None:
    assert OptionOverrides.__annotations__.keys() == Options.__annotations__.keys()
    for name, annotation in Options.__annotations__.items():
        assert annotation == OptionOverrides.__annotations__[name].__forward_arg__, name
