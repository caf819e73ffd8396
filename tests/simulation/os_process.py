"""A process as its operating system sees it: running, stopped or dead, with a backlog of events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bringup.transport.attempts import TroubleKind

from . import bounds
from .dialling import Dial
from .network import EVER

if TYPE_CHECKING:
    from .process import Process
    from .session import Connection
    from .world import World


class OsProcess:
    """The process of a client, as its operating system sees it.

    Attributes:
        connections: those to the coordinator; `served`: those of others to the coordinator here.
        stops: from when until when it was stopped.
        breaks: when its connection to the coordinator was broken, though nobody was hurt.
        gone_at: when it ended: all it held is closed then.
        busy_until: when it is done with all that it has begun; what comes before waits for its turn.
        busy_seconds: how long it has worked in all; `longest_task`: the longest without a pause for anything else.
        lag: seconds that it takes to get to what the network brings, as it is overloaded.
    """

    def __init__(self, world: World, name: str, link_address: str) -> None:
        self.world = world
        self.name = name
        self.link_address = link_address
        self.connections: dict[Connection, None] = {}
        self.served: dict[Connection, None] = {}
        self.has_begun = False
        self.is_alive = True
        self.has_crashed = False
        self.is_stopped = False
        self.is_listening = True
        self.stops: list[tuple[float, float]] = []
        self.breaks: list[float] = []
        self.gone_at = EVER
        self.busy_until = 0.0
        self.busy_seconds = 0.0
        self.longest_task = 0.0
        self._is_awaited = False
        self._waiting: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self.lag = 0.0
        self._unread: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._backlog: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def __repr__(self) -> str:
        return self.name

    # What reaches it.

    def deliver(self, action: Callable[..., None], *arguments: Any) -> None:
        """Run a callback in this process: now, once it is free or continued, or never if it is dead."""
        if self.is_stopped:
            self._backlog.append((action, arguments))
        elif not self.is_alive:
            return
        elif self.busy_until <= self.world.clock.now and not self._waiting:
            action(*arguments)
        else:
            self._waiting.append((action, arguments))
            self._go_on_when_free()

    def work(self, seconds: float) -> None:
        """Be at work for so long: what is sent from now on leaves afterwards, and nothing else happens here before."""
        self.busy_until = max(self.busy_until, self.world.clock.now) + seconds
        self.busy_seconds += seconds
        self.longest_task = max(self.longest_task, seconds)

    def _go_on_when_free(self) -> None:
        if not self._is_awaited:
            self._is_awaited = True
            self.world.clock.at(self.busy_until, self._go_on)

    def _go_on(self) -> None:
        """Take in what came while it was busy, in order."""
        self._is_awaited = False
        waiting, clock = self._waiting, self.world.clock
        while waiting and self.busy_until <= clock.now:
            action, arguments = waiting.popleft()
            action(*arguments)
        if waiting:
            self._go_on_when_free()

    def bring(self, action: Callable[..., None], *arguments: Any) -> None:
        """Run a callback of the network, once the process gets to it."""
        if self.lag == 0.0:
            return self.deliver(action, *arguments)
        self._unread.append((action, arguments))
        return self.later(self.lag, self._read_next)

    @property
    def is_behind(self) -> bool:
        """Whether something is unread here."""
        return bool(self._unread or self._waiting)

    def _read_next(self) -> None:
        if self._unread:
            action, arguments = self._unread.popleft()
            action(*arguments)

    def catch_up(self) -> None:
        """It is overloaded no longer, and reads all."""
        self.lag = 0.0
        while self._unread and self.is_alive:
            action, arguments = self._unread.popleft()
            self.deliver(action, *arguments)

    def later(self, delay: float, action: Callable[..., None], *arguments: Any) -> None:
        """Run a callback in this process in `delay` seconds."""
        self.world.clock.after(delay, self.deliver, action, *arguments)

    # What befalls it.

    def crash(self: Process, *, with_reset: bool = False) -> None:
        """Kill the process: the kernel closes its connections."""
        if self.gone_at < EVER:
            return
        self.world.clock.note(self.name, "crashes")
        self.has_crashed = True
        bounds.process_crashed(self)
        if self.is_stopped:
            self._note_stop_ends()
        self.is_alive = self.is_stopped = False
        unseen = [*self._backlog, *self._waiting, *self._unread]
        self._backlog.clear()
        self._waiting.clear()
        self._unread.clear()
        for dial in (argument for _, arguments in unseen for argument in arguments if isinstance(argument, Dial)):
            dial.process.later(self.world.network.delay(), dial.fail, TroubleKind.BROKEN)
        for connection in self.connections:
            connection.client_died(with_reset=with_reset)
        for connection in self.served:
            connection.host_died(with_reset=with_reset)
        self.end()

    def stop(self: Process) -> None:
        """Stop the process, as SIGSTOP does: all stays open, nothing moves."""
        if self.is_alive and not self.is_stopped and self.gone_at == EVER:
            begun = self.world.clock.now
            self.world.clock.note(self.name, "is stopped")
            self.is_stopped = True
            self._backlog.extend(self._waiting)
            self._waiting.clear()
            self.stops.append((begun, EVER))
            bounds.process_is_silent(self, lambda: self.is_stopped and self.stops[-1][0] == begun, "stopped")

    def resume(self) -> None:
        """Continue a stopped process, with all that has arrived meanwhile."""
        if not self.is_stopped:
            return
        self.world.clock.note(self.name, "goes on")
        self._note_stop_ends()
        self.is_stopped = False
        backlog, self._backlog = self._backlog, []
        for action, arguments in backlog:
            self.deliver(action, *arguments)

    def break_connection(self: Process, side: str = "both", late: float = 0.0) -> bool:
        """Break its connection to the coordinator, though nobody is hurt; returns whether there was one.

        Args:
            side: which side is told at once: "client", "host" or "both".
            late: seconds after which the other side is told, where there is one.
        """
        broken = [connection for connection in self.connections if connection.host is not self]
        for connection in broken:
            if side == "client":
                connection.break_off_at_client(late)
            elif side == "host":
                connection.break_off_at_host(late)
            else:
                connection.break_off()
        if broken:
            self.breaks.append(self.world.clock.now)
            if side != "both":
                self.dials.hindrances.append((self.world.clock.now, self.world.clock.now + late))
        return bool(broken)

    def _note_stop_ends(self) -> None:
        self.stops[-1] = (self.stops[-1][0], self.world.clock.now)
