"""The programs in docs/services.md run as they stand."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from bringup.testing.job import LocalJob

PAGE = (Path(__file__).parents[2] / "docs/services.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
WRITES = {
    "run/seed": ["client 0: seed 20", "client 2: seed 20", "arrived 3 of 3"],
    "shards": ["'shards/0': b'100 rows', 'shards/1': b'200 rows', 'shards/2': b'300 rows'"],
    "leader": ["the leader is client"],
    '"checkpoint", timeout': ["barrier 'checkpoint': ", "Missing: client 1 (127.0.0.1:", ", in phase ready, at step 7"],
    "live()": ["total 405"],
    "reached_preemption_point": ["step 100"],
    "compat": ["NOT_FOUND: Config key missing not found."],
}
"""What each program has in it, and what its clients write."""


def program_with(text: str) -> str:
    (program,) = (program for program in PROGRAMS if text in program)
    return program


def test_every_program_is_run() -> None:
    assert len(PROGRAMS) == len({program_with(text) for text in WRITES})


@pytest.mark.parametrize("text", WRITES)
def test_a_program_runs_with_three_clients(text: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(program_with(text))
    with LocalJob(3, command=[sys.executable, "program.py"], cwd=tmp_path, fork=True) as job:
        job.start()
        assert job.wait() == {0: 0, 1: 0, 2: 0}, [client.describe() for client in job.clients.values()]
        assert [client.log for client in job.clients.values()] == [""] * 3
        output = "".join(client.output for client in job.clients.values())
    for written in WRITES[text]:
        assert written in output


def test_all_save_at_one_step_when_one_gets_sigterm_and_resume_after_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(program_with("reached_preemption_point").replace("200", "10_000_000"))
    saved_at = train_until_sigterm(tmp_path, "step 100")
    hundreds = -(-(saved_at + 1) // 100)
    assert train_until_sigterm(tmp_path, f"resumed at step {saved_at + 1}", f"step {hundreds * 100}") > saved_at


def train_until_sigterm(tmp_path: Path, *lines: str) -> int:
    with LocalJob(3, command=[sys.executable, "train.py"], cwd=tmp_path, fork=True) as job:
        job.start()
        for line in lines:
            job.clients[1].wait_for(line)
        job.clients[1].terminate()
        assert job.wait() == {0: 0, 1: 0, 2: 0}
        (said,) = {client.wait_for("saved at step") for client in job.clients.values()}
        return int(said.split()[-1])
