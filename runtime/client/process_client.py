"""The client of this process, with its hold on the process: the active slot, SIGTERM, exit hooks, launcher reports."""

from __future__ import annotations

import atexit
import logging

from ...transport.forks import SOCKETS
from ..configuration.plan import Plan
from .active import ACTIVE
from .client import Client, State
from .compose import SHIPPED, Parts
from .job_failure import FailureAction
from .launcher_report import Reporter
from .machine_limits import check_open_files, short_queue
from .signals import TerminationNotice

_log = logging.getLogger("bringup")

# Seconds that the end of the interpreter, or SIGTERM, is held up until the other clients are told. Schedulers send
# SIGKILL some seconds after SIGTERM, 10 by default in many.
_GOODBYE_TIMEOUT = 3.0


class ProcessClient(Client):
    """A client that is the active one of its process, reports to its launcher, and acts on the process's end.

    Args:
        plan: its job, options and devices.
        is_blocking: whether `bringup.sync` asked for it.
        parts: see `Client`.
    """

    def __init__(self, plan: Plan, *, is_blocking: bool = False, parts: Parts = SHIPPED) -> None:
        super().__init__(plan, is_blocking=is_blocking, parts=parts)
        self._failure_action = FailureAction(plan.on_failure, self.job.client_id)
        self._termination = TerminationNotice(self.at_termination)
        self._is_preempted = False

    def start(self) -> None:
        """Start its thread, as the active client of this process; it is over where this raises.

        Except where this is interrupted, by Ctrl-C: the thread may run already, and is to be ended.

        Raises:
            AlreadyInitializedError: another client is active in this process.
            BringupError: a limit of this process or machine is in the way.
        """
        try:
            ACTIVE.claim(self)
            check_open_files(self.job.client_id, self.job.num_clients)
            Reporter(self.plan.launch, self.job.client_id, self.job.jobs or (), self.failed).start(self.up)
            self._tell_of_security()
            self._warn_of_short_queue()
            atexit.register(self._at_exit)
            self._termination.install()
            super().start()
        except BaseException:
            if self._runner is None or self._runner.withdraw():
                self._give_back()
                ACTIVE.release(self)
                self.over.set(None)
            raise

    def _tell_of_security(self) -> None:
        if self.job.is_alone:
            return
        if self.plan.security is None:
            _log.warning(
                "the peers of this job talk without authentication or encryption (%s): "
                "anybody who reaches %s can join or stop it",
                self.plan.security_source,
                self.job.coordinator_address,
            )
        else:
            _log.info("the peers of this job know each other by %s (%s)", self.plan.security, self.plan.security_source)

    def _warn_of_short_queue(self) -> None:
        if self.job.client_id == 0 and (text := short_queue(self.job.num_clients)):
            _log.warning("%s", text)

    def _on_failure(self) -> None:
        if self.peer is not None:
            self._failure_action.take(self.failure, self.peer.parted)

    def _on_thread_end(self) -> None:
        SOCKETS.clear()
        if self.up.value is None:
            ACTIVE.release(self)
        else:
            self.failure_notice.give_at_exit()
        self._give_back()

    def _give_back(self) -> None:
        atexit.unregister(self._at_exit)
        self._termination.remove()

    def _at_exit(self) -> None:
        """An interpreter that ends without `shutdown()` still says goodbye."""
        self._say_goodbye(SystemExit("its interpreter ended without shutdown()"))
        if self.up.value is not None:
            # The thread that has just ended would register it: too late for an interpreter that ends.
            self.failure_notice.at_exit()

    def at_termination(self) -> bool:
        """Handle SIGTERM: the first is a notice where the program asks for preemption points; else say goodbye.

        Returns:
            Whether it was taken as a notice, and the process goes on.
        """
        preemption = self.peer.preemption if self.peer is not None else None
        if preemption is not None and preemption.is_used and not self._is_preempted and not self.is_forked:
            self._is_preempted = True
            # On its loop: the signal may have interrupted a thread that holds the lock of the preemption.
            assert self._runner is not None
            return self._runner.call_soon(preemption.announce, 0.0, "SIGTERM")
        self._say_goodbye(SystemExit("it was ended by SIGTERM"))
        return False

    def _say_goodbye(self, error: BaseException) -> None:
        self.abort(error)
        if self.state in (State.STARTING, State.UP, State.ENDED):
            self.over.wait_blocking(_GOODBYE_TIMEOUT)

    def forked(self) -> None:
        """Called in a forked child: the sockets of the job are not its own."""
        SOCKETS.let_go()
