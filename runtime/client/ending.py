"""How a job ends for the caller who leaves it: a job that has failed raises, and is never silent."""

from __future__ import annotations

from ...errors import NotInitializedError, PeerFailedError
from ...processes.report import exceptions_behind
from .client import Client
from .launcher_report import report_left


def conclude(client: Client, *, raise_on_failure: bool) -> None:
    """Say how the job of a client ended, once it has; nothing where all left it in order, or in a forked child.

    Raises:
        BringupError: the job has failed, and it is to be raised. Not where this client's own program ended it.
    """
    if client.is_forked:
        return
    report_left()
    client.failure_notice.log("leaves a job that has failed")
    if raise_on_failure and not isinstance(client.failed.value, NotInitializedError | None):
        raise client.end()


def add_failure_note(client: Client, error: BaseException) -> None:
    """Add to what a program raises why its job has failed, unless it says so itself."""
    failure = client.failed.value
    client.failure_notice.note_given()
    if client.is_forked or not isinstance(failure, PeerFailedError):
        return
    if not any(isinstance(told, PeerFailedError) and str(told) == str(failure) for told in exceptions_behind(error)):
        error.add_note(f"Moreover, the job has failed: {failure}")
