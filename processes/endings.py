"""Descriptions of the end of a process: texts, and the exit status for its parent. Pure."""

from __future__ import annotations

import signal


def describe_end(returncode: int) -> str:
    """Return how a process ended, as a predicate: `ended with status 3`, `was killed by SIGKILL`.

    Args:
        returncode: its exit status, or minus the signal that ended it.
    """
    return f"ended with {name_end(returncode)}" if returncode >= 0 else f"was killed by {name_end(returncode)}"


def name_end(returncode: int) -> str:
    """Return how a process ended, as a noun: `status 3`, `SIGKILL`."""
    if returncode >= 0:
        return f"status {returncode}"
    try:
        return signal.Signals(-returncode).name
    except ValueError:  # a real-time signal
        return f"signal {-returncode}"


def exit_status(returncode: int) -> int:
    """Return the status that a shell would give: 128 and the signal for a process that a signal ended."""
    return returncode if returncode >= 0 else 128 - returncode


def last_lines(output: bytes | str, count: int) -> str:
    """Return the last lines of a process's output as a clause in parentheses, or nothing where it wrote nothing."""
    text = output.decode(errors="replace") if isinstance(output, bytes) else output
    lines = text.strip().splitlines()[-count:]
    return f" ({' / '.join(line.strip() for line in lines)})" if lines else ""
