"""The simulated network between hosts: latency, one-way cuts, ordered streams.

Streams are reliable, as TCP's are: what is sent during a cut arrives when the cut has healed and the sender has tried
again, and what a lost packet held is only late. Nothing is lost but by the end of a connection.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .clock import Clock

if TYPE_CHECKING:
    from .process import Process

EVER = float("inf")

_LOCAL_DELAY = 0.00001
_LOSSES_MAX = 2
_HOLE_MAX = 30.0

RECONNECT_MAX = 2.25
"""Seconds after a cut has healed until somebody who kept trying to connect has tried again: the kernel tries 0, 1 and 3
seconds after an attempt began, which is also when it is given up for a new one."""


@dataclass(frozen=True, slots=True)
class Latency:
    """The delay of a message, one way, in seconds.

    Attributes:
        low: at least.
        high: at most, where no packet is lost.
        loss: the probability that a packet is lost.
        resend: after how long it is sent again.
    """

    low: float
    high: float
    loss: float = 0.0
    resend: float = 0.2

    @property
    def worst(self) -> float:
        """The longest that a message takes."""
        return self.high + (_LOSSES_MAX * self.resend if self.loss else 0.0)

    def draw(self, rng: random.Random) -> float:
        """Return how long one message takes."""
        delay = self.low + (self.high - self.low) * rng.random()
        if self.loss:
            for _ in range(_LOSSES_MAX):
                if rng.random() >= self.loss:
                    break
                delay += self.resend
        return delay


LAN = Latency(0.0001, 0.005)
DELAY_MAX = LAN.high


class Cut:
    """From some hosts to others nothing arrives, from `since` until `until`; `None` stands for all hosts."""

    def __init__(self, sources: frozenset[int] | None, targets: frozenset[int] | None, since: float) -> None:
        self.sources = sources
        self.targets = targets
        self.since = since
        self.until = EVER
        self.waiting: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []

    def covers(self, source: int, target: int) -> bool:
        """Return whether it lies on the way from one host to another."""
        return (
            source != target
            and (self.sources is None or source in self.sources)
            and (self.targets is None or target in self.targets)
        )

    def touches(self, one: int, other: int) -> bool:
        """Return whether two hosts cannot talk because of it."""
        return self.covers(one, other) or self.covers(other, one)

    @property
    def hole(self) -> float:
        """The time after its end in which a connection may lead nowhere: senders wait twice as long each time."""
        return min(self.until - self.since, _HOLE_MAX) if self.until < EVER else 0.0

    def __repr__(self) -> str:
        ends = ("all" if hosts is None else ",".join(map(str, sorted(hosts))) for hosts in (self.sources, self.targets))
        return f"cut from hosts {' to '.join(ends)}"


class Network:
    """Between hosts, which are numbered as the clients that run on them.

    Attributes:
        cuts: all that ever were.
        broken_links: the clients a ring link of which was broken.
        hole: for how long after the cut that heals just now a connection may lead nowhere still.
    """

    def __init__(self, clock: Clock, rng: random.Random, latency: Latency) -> None:
        self.clock = clock
        self.rng = rng
        self.latency = latency
        self.cuts: list[Cut] = []
        self.broken_links: set[int] = set()
        self.hole = 0.0
        self._open_cuts: list[Cut] = []

    def delay(self) -> float:
        """Draw how long a message takes, one way."""
        return self.latency.draw(self.rng)

    def cut(self, sources: set[int] | None, targets: set[int] | None, seconds: float = EVER) -> Cut:
        """Drop everything from `sources` to `targets` for so long."""
        cut = Cut(
            None if sources is None else frozenset(sources),
            None if targets is None else frozenset(targets),
            self.clock.now,
        )
        self.clock.note("network", f"{cut} for {seconds:g} s")
        self.cuts.append(cut)
        self._open_cuts.append(cut)
        if seconds < EVER:
            self.clock.after(seconds, self.heal, cut)
        return cut

    def heal(self, cut: Cut) -> None:
        """End a cut; what it kept on the way is sent again some time after."""
        if cut not in self._open_cuts:
            return
        self.clock.note("network", f"healed: {cut}")
        self._open_cuts.remove(cut)
        cut.until = self.clock.now
        self.hole = cut.hole
        waiting, cut.waiting = cut.waiting, []
        for source, target, action, arguments in waiting:
            self.when_open(source, target, action, *arguments)

    def heal_all(self) -> None:
        """End all cuts."""
        for cut in list(self._open_cuts):
            self.heal(cut)

    def is_cut(self, source: int, target: int) -> bool:
        """Return whether nothing that is sent from one host to another arrives now."""
        return bool(self._open_cuts) and any(cut.covers(source, target) for cut in self._open_cuts)

    def is_cut_between(self, one: int, other: int) -> bool:
        """Return whether two hosts cannot talk: every exchange needs both ways."""
        return self.is_cut(one, other) or self.is_cut(other, one)

    def is_link_troubled(self, client_id: int) -> bool:
        """Return whether something has come between a client and another."""
        return client_id in self.broken_links or any(
            (cut.sources is None or client_id in cut.sources) or (cut.targets is None or client_id in cut.targets)
            for cut in self.cuts
        )

    def when_open(self, source: int, target: int, action: Callable[..., None], *arguments: Any) -> None:
        """Do something at once, or, where there is a cut on the way, once that has healed."""
        for cut in self._open_cuts:
            if cut.covers(source, target):
                cut.waiting.append((source, target, action, arguments))
                return
        action(*arguments)

    def when_open_between(self, one: int, other: int, action: Callable[..., None], *arguments: Any) -> None:
        """Do something once two hosts can talk."""
        if self.is_cut(one, other):
            self.when_open(one, other, self.when_open_between, one, other, action, *arguments)
        else:
            self.when_open(other, one, action, *arguments)


class Stream:
    """One direction of a connection: what is sent arrives in order, and nothing after the end."""

    def __init__(
        self,
        network: Network,
        source: int,
        receiver: Process,
        *,
        is_local: bool = False,
        sender: Process | None = None,
    ) -> None:
        self._network = network
        self._sender = sender
        self._source = source
        self._receiver = receiver
        self._is_local = is_local
        self._clear_at = 0.0
        self._has_ended = False
        self._resets = 0
        self._stalled_until = 0.0
        self._held: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    @property
    def is_stuck(self) -> bool:
        """Whether something that was sent waits for a cut to heal."""
        return bool(self._held)

    def put(self, deliver: Callable[..., None], *arguments: Any) -> None:
        """Call `deliver(*arguments)` at the other side, after all that was sent before."""
        if not self._has_ended:
            self._send(deliver, arguments)

    def end(self, deliver: Callable[..., None], *arguments: Any) -> None:
        """Call `deliver(*arguments)` at the other side, as its last event."""
        self.put(deliver, *arguments)
        self._has_ended = True

    def drop(self) -> None:
        """Lose what is on its way, and all that is sent from now on."""
        self._has_ended = True
        self._resets += 1
        self._held.clear()

    def stall(self, seconds: float) -> None:
        """Hold everything for so long, and lose nothing: it arrives afterwards, in order."""
        self._stalled_until = self._network.clock.now + seconds

    def reset(self, deliver: Callable[..., None], *arguments: Any) -> None:
        """Lose what is on its way, and let `deliver(*arguments)` be the last thing that happens at the other side."""
        if not self._has_ended:
            self.drop()
            self._send(deliver, arguments)

    def _send(self, deliver: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        network = self._network
        if self._held:
            self._held.append((deliver, arguments))
        elif network.is_cut(self._source, self._receiver.client_id):
            self._held.append((deliver, arguments))
            network.when_open(self._source, self._receiver.client_id, self._send_again)
        else:
            delay = _LOCAL_DELAY if self._is_local else network.delay()
            leaves_at = network.clock.now if self._sender is None else max(network.clock.now, self._sender.busy_until)
            self._clear_at = max(self._clear_at, leaves_at + delay)
            network.clock.at(self._clear_at, self._arrive, self._resets, deliver, arguments)

    def _send_again(self) -> None:
        """The way is free again, which the sender finds out when it next tries."""
        network = self._network
        network.clock.after(network.rng.uniform(0, max(network.latency.resend, network.hole)), self._flush)

    def _flush(self) -> None:
        held, self._held = self._held, []
        for deliver, arguments in held:
            self._send(deliver, arguments)

    def _arrive(self, resets: int, deliver: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if resets != self._resets:
            return
        clock = self._network.clock
        if clock.now < self._stalled_until:
            clock.at(self._stalled_until, self._arrive, resets, deliver, arguments)
        else:
            self._receiver.bring(deliver, *arguments)
