"""Jobs whose clients run cases: see `case_client.py`."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from bringup.testing.job import LocalJob

FOLDER = Path(__file__).parent
_PATIENCE = 40.0


def names_of(module: str) -> list[str]:
    """Return the cases of a module: its public functions that take a system, in the order in which they stand there."""
    functions = [node for node in ast.parse((FOLDER / module).read_text()).body if _takes_a_system(node)]
    return [node.name for node in functions if not node.name.startswith("_")]  # type: ignore[attr-defined]


def _takes_a_system(node: ast.stmt) -> bool:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    return [argument.arg for argument in node.args.args] == ["system"]


def job_of_cases(num_clients: int, module: str, names: Sequence[str], **environment: str) -> LocalJob:
    """Return a job, not started, whose clients run cases one after the other."""
    command = [sys.executable, str(FOLDER / "case_client.py"), str(FOLDER / module), *names]
    return LocalJob(num_clients, command=command, environment=environment, fork=True)


def check_case(job: LocalJob, name: str, client_ids: Iterable[int] | None = None) -> None:
    """Wait until some clients, or all, have run a case, and check that it went well on them."""
    problems = {}
    for client_id in job.clients if client_ids is None else client_ids:
        outcome = json.loads(job.clients[client_id].wait_for(f'{{"case": "{name}"', _PATIENCE))
        if outcome["problem"] is not None:
            problems[client_id] = outcome["problem"]
    shown = "\n".join(f"on client {client_id}:\n{problem}" for client_id, problem in problems.items())
    assert not problems, f"{name} failed {shown}"
