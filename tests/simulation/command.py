"""The simulator as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def run_command(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    """Run `python -m tests.simulation` from the root of the checkout."""
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        cwd=_ROOT,
        capture_output=True,
        text=True,
    )
