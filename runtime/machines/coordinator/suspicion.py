"""Suspicion: evidence that clients have died, probes of their processes, and the culprit of several deaths.

A client that is only silent is no suspect, and is not probed before its silence is judged. Its answer would come from
the loop that sends its heartbeats, and over a new connection, as the client itself dials one when half the time-out has
passed without an answer: what lets one through lets the other through. A process that was starved for the whole
time-out answers as little as one that is stopped, and to wait for longer would break the promise of when that is told.
Nor may an answer count as a heartbeat: a client that nobody hears in its session would never be judged.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ....transport.ports import ProbeOutcome
from ..detector import Detector
from ..id_ranges import COORDINATOR, format_ids, name_ids
from ..probes import Tag

# Clients that die together are named together: so long after the first proof the verdict waits for others.
_VERDICT_DELAY = 0.02
# A link that broke between two live processes is mostly the consequence of something else, which shows within this.
_DOUBT = 1.0
# Between two probes of one suspect: what answers once may be gone a moment later, and a probe costs a connection.
_PROBE_INTERVAL = 0.25
# After a stop of the coordinator it takes a while to read what all have said meanwhile.
_GIVEN_UP_DELAY = 0.25
# A socket each, beside those that the client is known to be able to open.
_PROBES_MAX = 64
_CAUSES_MAX = 3
"""Of those that are told in a text; many that die together mostly have one."""

_PROOF = (ProbeOutcome.REFUSED, ProbeOutcome.REPLACED)


@dataclass(slots=True)
class _Suspicion:
    """The evidence against one client. A broken session may resume; a broken link does not come back."""

    session: str = ""
    link: str = ""
    refusal: str = ""
    tag: Tag | None = None
    probe_due: float | None = None
    doubt_due: float | None = None
    detail: str = ""

    @property
    def evidence(self) -> str:
        return self.session or self.link or self.refusal


@dataclass(order=True, frozen=True, slots=True)
class _Due:
    due: float
    client_id: int
    suspicion: _Suspicion = field(compare=False)


class Suspicions:
    """All suspects. A suspect is probed at once, and again until it is proven dead, or its session goes on.

    What is due is kept in heaps, where entries that have been overtaken stay until they come up: an event costs the
    logarithm of the number of suspects, which are many where a network hiccups.

    Attributes:
        dead: the clients that are proven dead, or have given the coordinator up, in that order, with the causes.
        given_up: those of them that have said that they gave the coordinator up.
    """

    def __init__(self) -> None:
        self.dead: dict[int, str] = {}
        self.given_up: set[int] = set()
        self._of: dict[int, _Suspicion] = {}
        self._probed: dict[Tag, int] = {}
        self._to_probe: list[_Due] = []
        self._to_doubt: list[_Due] = []
        self._sequence = 0
        self._verdict_due: float | None = None

    def session_broke(self, client_id: int, evidence: str, now: float) -> None:
        """Suspect a client whose connection has ended."""
        suspicion = self._of.setdefault(client_id, _Suspicion())
        suspicion.session = suspicion.session or evidence
        self._probe_soon(client_id, suspicion, now)

    def link_broke(self, client_id: int, evidence: str, now: float) -> None:
        """Suspect a client at the other end of a broken ring link."""
        suspicion = self._of.setdefault(client_id, _Suspicion())
        suspicion.link = suspicion.link or evidence
        self._probe_soon(client_id, suspicion, now)

    def link_refused(self, client_id: int, evidence: str, now: float) -> None:
        """Suspect a client whose address refuses ring links; if it is alive, its neighbour dials again."""
        suspicion = self._of.setdefault(client_id, _Suspicion())
        suspicion.refusal = evidence
        self._probe_soon(client_id, suspicion, now)

    def session_resumed(self, client_id: int) -> None:
        """Drop the evidence of a broken session: the client has come back."""
        suspicion = self._of.get(client_id)
        if suspicion is not None:
            suspicion.session = ""
            if not suspicion.evidence:
                del self._of[client_id]

    def forget(self, client_id: int) -> None:
        """Drop all evidence against a client that leaves: its process may end at any time."""
        self._of.pop(client_id, None)
        if self.dead.pop(client_id, None) is not None and not self.dead:
            self._verdict_due = None

    def evidence(self, client_id: int) -> str:
        """Return the evidence against a client; empty where there is none."""
        return self._of[client_id].evidence if client_id in self._of else ""

    def probes(self, now: float) -> list[tuple[Tag, int]]:
        """Return the clients to be probed now, each with a tag for the answer, up to a bound on probes in flight."""
        found: list[tuple[Tag, int]] = []
        while len(self._probed) < _PROBES_MAX and (entry := self._next_probe()) is not None and entry.due <= now:
            heapq.heappop(self._to_probe)
            self._sequence += 1
            tag = self._sequence
            entry.suspicion.probe_due, entry.suspicion.tag = None, tag
            self._probed[tag] = entry.client_id
            found.append((tag, entry.client_id))
        return found

    def answered(self, tag: Tag, outcome: ProbeOutcome, detail: str, now: float, *, has_slept: bool) -> None:
        """Take in the result of a probe; one about a client that is no suspect any more is dropped.

        Where the coordinator `has_slept`, others may have said meanwhile why they go, which is not read yet.
        """
        client_id = self._probed.pop(tag, None)
        suspicion = self._of.get(client_id) if client_id is not None else None
        if client_id is None or suspicion is None or suspicion.tag != tag:
            return
        suspicion.tag = None
        suspicion.detail = detail
        if outcome in _PROOF:
            self._declare(
                client_id,
                f"process died ({detail}; {suspicion.evidence})",
                now,
                _GIVEN_UP_DELAY if has_slept else _VERDICT_DELAY,
            )
            return
        suspicion.refusal = ""
        if not suspicion.evidence:
            del self._of[client_id]
            return
        if outcome is ProbeOutcome.ALIVE and suspicion.link and suspicion.doubt_due is None:
            suspicion.doubt_due = now + _DOUBT
            heapq.heappush(self._to_doubt, _Due(suspicion.doubt_due, client_id, suspicion))
        self._probe_at(client_id, suspicion, now + _PROBE_INTERVAL)

    def gave_up(self, client_id: int, cause: str, now: float) -> None:
        """Note that a client has given the coordinator up, and has gone; others may do so, too."""
        self.given_up.add(client_id)
        self._declare(client_id, cause, now, _GIVEN_UP_DELAY)

    def verdict_is_due(self, now: float) -> bool:
        """Return whether the verdict on the dead is due."""
        return self._verdict_due is not None and self._verdict_due <= now

    def doubtful(self, now: float) -> tuple[int, str] | None:
        """Return a client, with the cause, that is alive while its link has been broken for too long."""
        entry = self._next_doubt()
        if entry is None or entry.due > now:
            return None
        return entry.client_id, f"{entry.suspicion.link} ({entry.suspicion.detail})"

    def deadline(self) -> float | None:
        """Return when to wake this next."""
        probe = self._next_probe() if len(self._probed) < _PROBES_MAX else None
        dues = [entry.due for entry in (probe, self._next_doubt()) if entry is not None]
        return min([*dues, *([] if self._verdict_due is None else [self._verdict_due])], default=None)

    def _declare(self, client_id: int, cause: str, now: float, delay: float) -> None:
        self.dead.setdefault(client_id, cause)
        if self._verdict_due is None:
            self._verdict_due = now + delay

    def _probe_soon(self, client_id: int, suspicion: _Suspicion, now: float) -> None:
        if suspicion.tag is None:
            self._probe_at(client_id, suspicion, now)

    def _probe_at(self, client_id: int, suspicion: _Suspicion, due: float) -> None:
        if suspicion.probe_due is None or due < suspicion.probe_due:
            suspicion.probe_due = due
            heapq.heappush(self._to_probe, _Due(due, client_id, suspicion))

    def _next_probe(self) -> _Due | None:
        return self._first(self._to_probe, lambda entry: entry.suspicion.probe_due)

    def _next_doubt(self) -> _Due | None:
        return self._first(self._to_doubt, lambda entry: entry.suspicion.doubt_due)

    def _first(self, heap: list[_Due], due_of: Callable[[_Due], float | None]) -> _Due | None:
        """Return the entry that is due first; drops obsolete ones."""
        while heap and not (self._of.get(heap[0].client_id) is heap[0].suspicion and due_of(heap[0]) == heap[0].due):
            heapq.heappop(heap)
        return heap[0] if heap else None


@dataclass(frozen=True, slots=True)
class Culprit:
    """The client that a verdict names, and the cause.

    Attributes:
        also: the clients to name with it.
        is_host: whether the coordinator itself is what was lost.
    """

    client_id: int
    cause: str
    also: tuple[int, ...] = ()
    is_host: bool = False


def culprit_of(suspicions: Suspicions, judge: Detector, num_clients: int, now: float) -> Culprit:
    """Return the culprit among the dead.

    A client that was heard until it died has died by itself. One that had not heard the coordinator for so long that it
    must give it up has gone for that, whether it could say so or not: where the coordinator slept, or all have gone,
    the coordinator is to blame.
    """
    dead, slept = suspicions.dead, judge.slept(now)
    killed = [c for c in dead if c not in suspicions.given_up and not judge.may_have_given_up(c, now)]
    if not killed:
        if slept > 0:
            what = f"it did not run for {slept:.1f} s (stopped, suspended or starved)"
            return Culprit(
                COORDINATOR,
                f"{what}, and {name_ids(dead)} {'has' if len(dead) == 1 else 'have'} gone: {_causes(dead)}",
                is_host=True,
            )
        if 1 < len(dead) == num_clients - 1:
            what = "all other clients have gone, as they do when this one is stopped or cut off for too long"
            return Culprit(COORDINATOR, f"{what}: {_causes(dead)}", is_host=True)
    first = next(iter(killed or dead))
    return Culprit(first, dead[first], tuple(client_id for client_id in dead if client_id != first))


def _causes(dead: Mapping[int, str]) -> str:
    by_cause: dict[str, list[int]] = {}
    for client_id, cause in dead.items():
        by_cause.setdefault(cause, []).append(client_id)
    texts = [f"client{'s' * (len(who) > 1)} {format_ids(who)}: {cause}" for cause, who in by_cause.items()]
    return "; ".join([*texts[:_CAUSES_MAX], *(["..."] if len(texts) > _CAUSES_MAX else [])])
