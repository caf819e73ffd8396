"""The start, the leaving and the end of a client, written once for callers that await and callers that block.

Each function returns `Steps`, which `awaited` and `blocked` run.
"""

from __future__ import annotations

import asyncio
import os

from ...errors import AlreadyInitializedError, NotInitializedError, PeerFailedError
from ...processes.report import exceptions_behind
from ..configuration.handed_tokens import HANDED
from ..configuration.plan import make_plan
from ..configuration.request import Request
from ..drivers.latch import Steps
from .active import ACTIVE
from .client import Client, State
from .cluster_query import resolved
from .compose import SHIPPED, Parts
from .launcher_report import report_left
from .process_client import ProcessClient


def bring_up(request: Request, loop: asyncio.AbstractEventLoop | None, parts: Parts = SHIPPED) -> Steps[Client]:
    """Start the client that the arguments of `initialize()` and the environment describe, and wait until its job is up.

    Where the wait is interrupted, the client is ended before the interruption is raised.

    Args:
        request: the arguments.
        loop: the caller's event loop; `None` where the caller blocks. The device backend's imports are done there.
        parts: see `Client`.

    Raises:
        BringupError: see `bringup.initialize`.
    """
    client = yield from _started(request, loop, parts)
    try:
        if loop is None:
            client.imports.serve_blocking()
        yield client.up
    except asyncio.CancelledError:
        yield from abandon(client, asyncio.CancelledError("initialize() was cancelled"))
        raise
    except BaseException as error:
        yield from abandon(client, error)
        raise
    if client.up.value is None:
        yield from client.finish()
        raise client.end_error()
    return client


def _started(request: Request, loop: asyncio.AbstractEventLoop | None, parts: Parts) -> Steps[Client]:
    environ = HANDED.take(os.environ)
    job = yield from resolved(request, environ)
    plan = make_plan(request, environ, job)
    while True:
        yield from _make_room(reset=request.reset)
        client = ProcessClient(plan, is_blocking=loop is None, parts=parts)
        client.imports.serve(loop)
        try:
            client.start()
            return client
        except AlreadyInitializedError:
            if not request.reset:
                raise
            # Another thread's `initialize()` was faster: that one is replaced.
        except BaseException as error:
            yield from abandon(client, error)
            raise


def _make_room(*, reset: bool) -> Steps[None]:
    """Wait until the active client has ended, if its job has failed, or `reset` asks to end it."""
    incumbent = ACTIVE.get()
    if incumbent is None:
        return
    if incumbent.failed.is_set:
        yield from incumbent.finish()
        incumbent.failure_notice.note_given()
    elif reset and incumbent.up.value is not None:
        yield from leave(incumbent, raise_on_failure=False)
    elif reset:
        yield from abandon(incumbent, asyncio.CancelledError("another initialize(reset=True) replaced it"))


def leave(client: Client, *, raise_on_failure: bool) -> Steps[None]:
    """Leave the job with all other clients, and wait until nothing of this client is left; see `System.shutdown`.

    Raises:
        BringupError: the job has failed, and `raise_on_failure`. Not where this client's own program has ended it.
    """
    if client.state is State.UP:
        client.leave()
        yield client.ended
    yield from client.finish()
    ACTIVE.release(client)
    if client.is_forked:
        return
    report_left()
    client.failure_notice.log("leaves a job that has failed")
    if raise_on_failure and not isinstance(client.failed.value, NotInitializedError | None):
        raise client.end_error()


def abandon(client: Client, error: BaseException) -> Steps[None]:
    """End a client because of `error`, which its program raises and the other clients are told.

    A failure of the job from before is added to the error as a note.
    """
    client.abort(error)
    try:
        yield from client.finish()
    finally:
        if client.is_over:
            ACTIVE.release(client)
    client.failure_notice.note_given()
    failure = client.failed.value
    if isinstance(failure, PeerFailedError) and not client.is_forked and not _says(error, failure):
        error.add_note(f"Moreover, the job has failed: {failure}")


def _says(error: BaseException, failure: PeerFailedError) -> bool:
    """Whether a traceback of `error` shows the failure already."""
    behind = exceptions_behind(error)
    return any(isinstance(shown, PeerFailedError) and str(shown) == str(failure) for shown in behind)
