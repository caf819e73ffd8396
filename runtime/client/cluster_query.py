"""The question to a cluster resolver, on an event loop of its own: neither face of bringup waits for it on its loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ..configuration.job import JobSpec
from ..configuration.options import Options
from ..configuration.request import Request
from ..configuration.resolve import PendingJob, find_source
from ..drivers.latch import Latch, Steps
from .active import ACTIVE
from .loop_thread import RuntimeThread


def resolved(request: Request, environ: Mapping[str, str]) -> Steps[JobSpec]:
    """Resolve the job of the arguments of `initialize()`. Interrupting the wait is safe.

    Raises:
        AlreadyInitializedError: a cluster is to be asked, and this process has an active system.
        ConfigurationError: see `find_source` and `PendingJob.resolve`.
    """
    found = find_source(request, environ)
    if isinstance(found, JobSpec):
        return found
    incumbent = ACTIVE.get()
    if not request.reset and incumbent is not None and not incumbent.failed.is_set:
        ACTIVE.refuse_another()  # before a question that the other clients may have to answer, too
    options = Options.resolve(request.options, request.overrides, environ)
    query = _Query(found, options.initialization_timeout)
    query.thread.start()
    try:
        yield query.finished
    except BaseException:
        query.cancel()
        yield query.finished
        raise
    finally:
        query.thread.join()
    return query.result()


class _Query:
    """One question, with its thread."""

    def __init__(self, pending: PendingJob, timeout: float) -> None:
        self.finished: Latch[None] = Latch()
        self.thread = RuntimeThread(self._ask, name="bringup-resolve", on_end=self._note_end, finished=self.finished)
        self._pending = pending
        self._timeout = timeout
        self._is_cancelled = False
        self._task: asyncio.Task[None] | None = None
        self._job: JobSpec | None = None
        self._error: BaseException | None = None

    def cancel(self) -> None:
        """End the question; called in another thread."""
        self._is_cancelled = True
        if self.thread.withdraw():
            self.finished.set(None)
        else:
            self.thread.call_soon(self._cancel_task)

    def result(self) -> JobSpec:
        """Return the job, once it has finished.

        Raises:
            ConfigurationError: there is none.
        """
        if self._error is not None:
            raise self._error
        assert self._job is not None
        return self._job

    async def _ask(self) -> None:
        self._task = asyncio.current_task()
        if not self._is_cancelled:
            self._job = await self._pending.resolve(self._timeout)

    def _cancel_task(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _note_end(self, error: BaseException | None) -> None:
        self._error = error
