"""Runs a job as processes of this machine: starts the clients, watches them, and ends all when one fails."""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from ..errors import BringupError, ConfigurationError
from ..processes.child import ClientProcess, OnOutput, Stream
from ..processes.groups import end_group, kill_group, signal_group
from ..processes.guard import Guard
from ..processes.report import ClientState, ErrorReport, error_path, state_path
from ..runtime.configuration.client_environment import client_environment, free_addresses
from ..runtime.configuration.handed_tokens import HANDED
from ..runtime.configuration.options import Options
from ..runtime.configuration.security import token_for_clients
from ..runtime.machines.id_ranges import name_ids
from .outcome import Ended, Outcome, describe_absence, describe_failure, root_of

GRACE_BEYOND_SHUTDOWN = 5.0
"""Seconds beyond `shutdown_timeout`, in which clients leave together, until a client is killed."""

GRACE_AFTER_FAILURE = 5.0
"""Seconds until a client is killed after another has failed: nobody waits for anybody then."""

_CULPRIT_PATIENCE = 3.0
"""Seconds for a client to end by itself once another has ended because of its failure: it may write a traceback."""

_OTHERS_PATIENCE = 2.0
"""Seconds for the clients of a failed job to raise its error and end by themselves."""

_ABSENCE_INTERVAL = 0.5
"""Seconds between two looks at clients that wait for one that has ended: it may have been restarted meanwhile."""

_SILENCE = 3.0
"""Seconds of an orderly end after which the launcher names the clients that it waits for."""

_OUTPUT_DEADLINE = 1.0
"""Seconds for the output of killed clients to be read; longer only where its reader has stopped."""

_LAST_LINES = 5
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def grace_of(environ: Mapping[str, str]) -> float:
    """Seconds for clients to leave their job in order, by the settings in their environment."""
    try:
        timeout = Options.resolve(None, {}, environ).shutdown_timeout
    except ConfigurationError:  # the clients report it themselves
        timeout = Options().shutdown_timeout
    return timeout + GRACE_BEYOND_SHUTDOWN


class Launcher:
    """Runs one job.

    Args:
        command: The command of every client.
        num_clients: The number of clients, 1 or more.
        environ: The environment from which the clients' are made.
        on_output: Called with the clients' output.
        say: Called with each line for a person.
        grace: Seconds between the signal that asks a client to end and `SIGKILL`; `None` for `grace_of`
            the environment and, after a failure, `GRACE_AFTER_FAILURE`.
        patience: The fewest seconds for the other clients to end by themselves once one has failed.
        stdin: A descriptor, the standard input of all clients.
        end_signal: The signal that ends the clients when this process gets one; `None` for that same one.
    """

    def __init__(
        self,
        command: Sequence[str],
        num_clients: int,
        environ: Mapping[str, str],
        *,
        on_output: OnOutput,
        say: Callable[[str], None],
        grace: float | None = None,
        patience: float = 0.0,
        stdin: int = subprocess.DEVNULL,
        end_signal: int | None = None,
    ) -> None:
        self._command = command
        self._environ = environ
        self._hear = on_output
        self._say = say
        self._grace = grace
        self._patience = patience
        self._stdin = stdin
        self._end_signal = end_signal
        self.addresses = free_addresses(num_clients)
        self._clients: list[ClientProcess] = []
        self._alive: dict[int, ClientProcess] = {}  # the process or any that it has started
        self._running: set[int] = set()
        self._ended: list[Ended] = []
        self._last_lines = {client_id: deque[str](maxlen=_LAST_LINES) for client_id in range(num_clients)}
        self._first_failure: Ended | None = None
        self._absent: list[Ended] = []
        self._waiting: list[int] = []
        self._signal: int | None = None
        self._ending_signal: int | None = None
        self._asked_at = math.inf
        self._start_failure: BringupError | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._end_due = math.inf
        self._reports: ClientReports
        self._token: int | None = None

    async def run(self) -> Outcome:
        """Start all clients and wait until all have ended, with all that they started.

        Raises:
            ConfigurationError: the token that this process was handed cannot be used.
            BringupError: not all could be started.
        """
        self._token = token_for_clients(self._environ, HANDED)
        self._reports = ClientReports(self.addresses)
        guard = Guard(self._reports.folder)
        try:
            with _handled(_PASSED_ON, self.stop):
                async with asyncio.TaskGroup() as tasks:
                    await self._start_all(guard, tasks)
        finally:
            for timer in self._timers:
                timer.cancel()
            guard.close()
            self._reports.close()
            if self._token is not None:
                os.close(self._token)
        if self._start_failure is not None:
            raise self._start_failure
        return self._conclude()

    def stop(self, number: int) -> None:
        """End all clients because of signal `number`; kill them at the second call."""
        if self._signal is None:
            self._signal = number
            # A broken pipe is this process's own affair: the clients are asked to end as at any other time.
            self._end(self._end_signal or (signal.SIGTERM if number == signal.SIGPIPE else number))
        else:
            self._kill_all("after a second signal")

    def _conclude(self) -> Outcome:
        """Print the root cause of a failure; returns the outcome."""
        ended = tuple(replace(one, last_lines=tuple(self._last_lines[one.client_id])) for one in self._ended)
        host = socket.gethostname()
        root: Ended | None = None
        lines: list[str] = []
        if self._first_failure is not None:
            root = root_of(self._first_failure, ended)
            lines = describe_failure(root, ended, host)
        elif self._absent:
            lines = describe_absence(self._absent, self._waiting, host)
        for line in lines:
            self._say(line)
        absent = tuple(one.client_id for one in self._absent)
        return Outcome(ended, self._first_failure, self._signal, root, absent)

    @property
    def _is_ending(self) -> bool:
        is_asked = self._ending_signal is not None or self._signal is not None
        return is_asked or self._first_failure is not None or self._start_failure is not None

    async def _start_all(self, guard: Guard, tasks: asyncio.TaskGroup) -> None:
        for client_id in range(len(self.addresses)):
            if self._is_ending:
                return
            try:
                client = await ClientProcess.start(
                    client_id,
                    self._command,
                    environ=client_environment(
                        self._environ,
                        self.addresses,
                        client_id,
                        launcher=self._reports.prefix(client_id),
                        token_descriptor=self._token,
                    ),
                    descriptors=() if self._token is None else (self._token,),
                    guard=guard,
                    stdin=self._stdin,
                    on_output=self._on_output,
                    tasks=tasks,
                )
            except OSError as error:
                self._start_failure = BringupError(
                    f"client {client_id} of {len(self.addresses)} could not be started: {error}; the others were ended"
                )
                self._end(signal.SIGTERM)
                return
            self._clients.append(client)
            self._alive[client_id] = client
            self._running.add(client_id)
            tasks.create_task(self._attend(client, guard))
            if self._ending_signal is not None:  # it came while this client was being started
                signal_group(client.pid, self._ending_signal)

    async def _attend(self, client: ClientProcess, guard: Guard) -> None:
        """Wait for the end of a client, and end all that it started."""
        try:
            returncode = await client.wait()
            self._running.discard(client.client_id)
            self._note_end(client, returncode)
            await end_group(client.pid, self._grace_now)
        finally:
            kill_group(client.pid)
            guard.forget(client.pid)
            self._running.discard(client.client_id)
            del self._alive[client.client_id]
        await client.drain()

    async def _on_output(self, client_id: int, stream: Stream, lines: bytes) -> None:
        if stream == "stderr":
            shown = lines.decode(errors="replace").splitlines()[-_LAST_LINES:]
            self._last_lines[client_id].extend(line for line in shown if line.strip())
        await self._hear(client_id, stream, lines)

    # The end of one client, and its consequences.

    def _note_end(self, client: ClientProcess, returncode: int) -> None:
        report = self._reports.error(client.client_id)
        ended = Ended(
            client.client_id,
            client.pid,
            returncode,
            was_asked=self._ending_signal is not None,
            state=self._reports.state(client.client_id),
            # Later errors are consequences of this process's signals, and blame the wrong client.
            report=None if report is None or report.at >= self._asked_at else report,
        )
        self._ended.append(ended)
        if self._first_failure is not None:
            self._end_when_due()
        elif self._is_ending:
            return
        elif returncode != 0:
            self._first_failure = ended
            self._end_when_due()
        else:
            self._later(_ABSENCE_INTERVAL, lambda: self._look_for_absence([]))

    def _end_when_due(self) -> None:
        """End the remaining clients after the time in which they may end by themselves."""
        now = asyncio.get_running_loop().time()
        due = now + max(self._patience, self._patience_with_others)
        if due < self._end_due and self._running and self._ending_signal is None:
            self._end_due = due
            self._later(due - now, self._end_after_failure)

    @property
    def _patience_with_others(self) -> float:
        failed = [one for one in self._ended if one.returncode != 0]
        if all(one.state == "left" for one in failed):
            return grace_of(self._environ) if self._grace is None else self._grace
        reports = [one.report for one in failed if one.report is not None and not one.report.missing]
        if any(culprit in self._running for report in reports for culprit in report.culprits):
            return _CULPRIT_PATIENCE
        return _OTHERS_PATIENCE if any(map(self._reports.state, self._running)) else 0.0

    def _end_after_failure(self) -> None:
        if self._ending_signal is None:
            self._end(signal.SIGTERM)

    def _look_for_absence(self, seen: list[int]) -> None:
        """End a job that cannot come up, as clients that others wait for have ended; the second look decides."""
        if self._is_ending or not self._running:
            return None
        waiting = self._reports.waiting(sorted(self._running))
        if not waiting or waiting != seen:
            return self._later(_ABSENCE_INTERVAL, lambda: self._look_for_absence(waiting))
        self._absent = [one for one in self._ended if one.state != "starting"]
        self._waiting = waiting
        return self._end(signal.SIGTERM)

    @property
    def _grace_now(self) -> float:
        if self._grace is not None:
            return self._grace
        return grace_of(self._environ) if self._signal is not None else GRACE_AFTER_FAILURE

    def _end(self, number: int) -> None:
        self._ending_signal = number
        self._asked_at = time.time()
        for client in self._alive.values():
            signal_group(client.pid, number)
        grace = self._grace_now
        self._later(grace, lambda: self._kill_all(f"as it had not ended within {grace:g} s"))
        if grace > 2 * _SILENCE:
            self._later(_SILENCE, lambda: self._name_remaining(grace - _SILENCE))

    def _name_remaining(self, seconds: float) -> None:
        if self._alive:
            self._say(f"waiting for {name_ids(self._alive)} to end: killed in {seconds:g} s, or at another signal")

    def _kill_all(self, reason: str) -> None:
        for client in self._alive.values():
            kill_group(client.pid)
            self._say(f"client {client.client_id} (process {client.pid}) was killed, {reason}")
        # By now only a stopped reader of this process's output can hold it up.
        self._later(_OUTPUT_DEADLINE, self._abandon_output)

    def _abandon_output(self) -> None:
        for client in self._clients:
            client.abandon_output()

    def _later(self, delay: float, call: Callable[[], None]) -> None:
        self._timers.append(asyncio.get_running_loop().call_later(delay, call))


@contextmanager
def _handled(numbers: Sequence[signal.Signals], handler: Callable[[int], None]) -> Iterator[None]:
    """Handle signals on the running loop, except `SIGHUP` where `nohup` has set it to be ignored."""
    loop = asyncio.get_running_loop()
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    handled = [number for number in numbers if not (number is signal.SIGHUP and ignored)]
    for number in handled:
        loop.add_signal_handler(number, handler, number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


class ClientReports:
    """The files in which the clients report their state and their error; empty where no folder can be made for them.

    Args:
        jobs: The addresses of the job; a client's state in another job does not count.

    Attributes:
        folder: The folder of the files, or `None`.
    """

    def __init__(self, jobs: tuple[str, ...]) -> None:
        self._jobs = jobs
        try:
            self.folder: str | None = tempfile.mkdtemp(prefix="bringup-run-")
        except OSError:
            self.folder = None

    def prefix(self, client_id: int) -> str:
        """The prefix of a client's files; empty without a folder."""
        return "" if self.folder is None else os.path.join(self.folder, str(client_id))

    def state(self, client_id: int) -> str:
        """The state of a client (see `ClientState`); empty where it has not called `initialize()`."""
        state = ClientState.of_json(self._read(state_path(self.prefix(client_id))))
        return state.state if state is not None and state.jobs == self._jobs else ""

    def error(self, client_id: int) -> ErrorReport | None:
        """The error that ended a client, if it has reported one."""
        return ErrorReport.of_json(self._read(error_path(self.prefix(client_id))))

    def waiting(self, client_ids: Iterable[int]) -> list[int]:
        """Return the given clients that are in `initialize()`."""
        return [client_id for client_id in client_ids if self.state(client_id) == "starting"]

    def close(self) -> None:
        """Remove the folder."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self, path: str) -> str:
        if self.folder is None:
            return ""
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return ""
