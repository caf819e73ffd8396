"""Runs a job as processes of this machine: starts the clients, watches them, and ends all where one fails."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ...errors import BringupError
from .client_environment import client_environment, free_addresses
from .client_process import ClientProcess, Guard, OnOutput
from .outcome import Ended, Outcome, describe_failure
from .process_groups import end_group, kill_group, signal_group

__all__ = ["GRACE", "Launcher"]

GRACE = 5.0
"""Seconds between the signal that asks a client to end and the one that kills it."""

_OUTPUT_DEADLINE = 1.0
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Launcher:
    """Runs one job.

    Args:
        command: what every client runs.
        num_clients: how many, 1 or more.
        environ: the environment that the clients' are made from.
        on_output: gets the clients' output.
        say: gets what a person should know, one line each.
        grace: seconds between the signal that asks a client to end and `SIGKILL`.
        patience: seconds that the other clients have to end by themselves once one has failed.
        stdin: a descriptor, the standard input of all clients.
        end_signal: what the clients are ended with when this process gets a signal; `None` for that same one.
    """

    def __init__(
        self,
        command: Sequence[str],
        num_clients: int,
        environ: Mapping[str, str],
        *,
        on_output: OnOutput,
        say: Callable[[str], None],
        grace: float = GRACE,
        patience: float = 0.0,
        stdin: int = subprocess.DEVNULL,
        end_signal: int | None = None,
    ) -> None:
        self._command = command
        self._environ = environ
        self._on_output = on_output
        self._say = say
        self._grace = grace
        self._patience = patience
        self._stdin = stdin
        self._end_signal = end_signal
        self.addresses = free_addresses(num_clients)
        self._clients: list[ClientProcess] = []
        self._alive: dict[int, ClientProcess] = {}
        self._ended: list[Ended] = []
        self._first_failure: Ended | None = None
        self._signal: int | None = None
        self._ending_signal: int | None = None
        self._start_failure: BringupError | None = None
        self._timers: list[asyncio.TimerHandle] = []

    async def run(self) -> Outcome:
        """Start all clients, and return when all have ended; nothing of them is left then.

        Raises:
            BringupError: not all could be started.
        """
        guard = Guard()
        try:
            with _handled(_PASSED_ON, self.stop):
                async with asyncio.TaskGroup() as tasks:
                    await self._start_all(guard, tasks)
        finally:
            for timer in self._timers:
                timer.cancel()
            guard.close()
        if self._start_failure is not None:
            raise self._start_failure
        return Outcome(tuple(self._ended), self._first_failure, self._signal)

    def stop(self, number: int) -> None:
        """End all clients because of signal `number`; called a second time, kill them."""
        if self._signal is None:
            self._signal = number
            # Nobody who writes to a pipe that broke expects others to get that signal.
            self._end(self._end_signal or (signal.SIGTERM if number == signal.SIGPIPE else number))
        else:
            self._kill_all("after a second signal")

    @property
    def _is_ending(self) -> bool:
        return self._first_failure is not None or self._signal is not None or self._start_failure is not None

    async def _start_all(self, guard: Guard, tasks: asyncio.TaskGroup) -> None:
        for client_id in range(len(self.addresses)):
            if self._is_ending:
                return
            try:
                client = await ClientProcess.start(
                    client_id,
                    self._command,
                    environ=client_environment(self._environ, self.addresses, client_id),
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
            tasks.create_task(self._attend(client, guard))
            if self._ending_signal is not None:  # it came while this client was being started
                signal_group(client.pid, self._ending_signal)

    async def _attend(self, client: ClientProcess, guard: Guard) -> None:
        """See a client to its end, and to that of all that it started."""
        try:
            ended = Ended(client.client_id, client.pid, await client.wait())
            self._ended.append(ended)
            others = [other for other in self._alive if other != client.client_id]
            failed_first = ended.returncode != 0 and not self._is_ending
            if failed_first:
                self._first_failure = ended
                self._later(self._patience, lambda: self._end(signal.SIGTERM))
            await end_group(client.pid, self._grace)
        finally:
            kill_group(client.pid)
            guard.forget(client.pid)
            del self._alive[client.client_id]
        await client.drain()
        if failed_first:
            self._say(describe_failure(ended, others))

    def _end(self, number: int) -> None:
        self._ending_signal = number
        for client in self._alive.values():
            signal_group(client.pid, number)
        self._later(self._grace, lambda: self._kill_all(f"as it had not ended within {self._grace:g} s"))

    def _kill_all(self, reason: str) -> None:
        for client in self._alive.values():
            kill_group(client.pid)
            self._say(f"client {client.client_id} (process {client.pid}) was killed, {reason}")
        # By now only a reader of ours that has stopped reading can keep output from ending.
        self._later(_OUTPUT_DEADLINE, self._abandon_output)

    def _abandon_output(self) -> None:
        for client in self._clients:
            client.abandon_output()

    def _later(self, delay: float, call: Callable[[], None]) -> None:
        self._timers.append(asyncio.get_running_loop().call_later(delay, call))


@contextmanager
def _handled(numbers: Sequence[signal.Signals], handler: Callable[[int], None]) -> Iterator[None]:
    """Handle signals on the running loop, save `SIGHUP` where `nohup` had it ignored."""
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
