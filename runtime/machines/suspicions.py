"""Who is suspected to have died, on what evidence, and what asking its process has shown."""

from __future__ import annotations

from dataclasses import dataclass

from ...transport.ports import ProbeOutcome
from .events import Tag

__all__ = ["Suspicions"]

# Clients that die together are named together: so long after the first proof the verdict waits for others.
_VERDICT_DELAY = 0.02
# A link that broke between two live processes is mostly the consequence of something else, which shows within this.
_DOUBT = 1.0
_PROBE_INTERVAL = 0.25
# After a stop of the coordinator it takes a while to read what all have said meanwhile.
_GIVEN_UP_DELAY = 0.25
_PROOF = (ProbeOutcome.REFUSED, ProbeOutcome.REPLACED)


@dataclass(slots=True)
class _Suspicion:
    """A broken session may be taken up again; a broken link is not."""

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


class Suspicions:
    """A suspect is probed at once and again until it is proven dead, or its session goes on.

    Attributes:
        dead: the clients that are proven dead, or have given the coordinator up, in that order, with the causes.
    """

    def __init__(self, epoch: int) -> None:
        self.dead: dict[int, str] = {}
        self._of: dict[int, _Suspicion] = {}
        self._probed: dict[Tag, int] = {}
        self._epoch = epoch
        self._sequence = 0
        self._verdict_due: float | None = None

    def session_broke(self, client_id: int, evidence: str, now: float) -> None:
        """Suspect a client whose connection ended."""
        suspicion = self._of.setdefault(client_id, _Suspicion())
        suspicion.session = suspicion.session or evidence
        self._probe_at(suspicion, now)

    def link_broke(self, client_id: int, evidence: str, now: float) -> None:
        """Suspect a client to which a ring link broke."""
        suspicion = self._of.setdefault(client_id, _Suspicion())
        suspicion.link = suspicion.link or evidence
        self._probe_at(suspicion, now)

    def link_refused(self, client_id: int, evidence: str, now: float) -> None:
        """Suspect a client whose address refuses a ring link; where it lives, it is dialled again."""
        suspicion = self._of.setdefault(client_id, _Suspicion())
        suspicion.refusal = evidence
        self._probe_at(suspicion, now)

    def session_resumed(self, client_id: int) -> None:
        """Forgive a client that has come back."""
        suspicion = self._of.get(client_id)
        if suspicion is not None:
            suspicion.session = ""
            if not suspicion.evidence:
                del self._of[client_id]

    def evidence(self, client_id: int) -> str:
        """Return what speaks against a client, or nothing."""
        return self._of[client_id].evidence if client_id in self._of else ""

    def probes(self, now: float) -> list[tuple[Tag, int]]:
        """Return the clients to be probed now, each with a tag for the answer."""
        due = [(c, s) for c, s in self._of.items() if s.probe_due is not None and s.probe_due <= now]
        for client_id, suspicion in due:
            self._sequence += 1
            suspicion.probe_due = None
            suspicion.tag = (self._epoch, self._sequence)
            self._probed[suspicion.tag] = client_id
        return [(suspicion.tag, client_id) for client_id, suspicion in due if suspicion.tag is not None]

    def answered(self, tag: Tag, outcome: ProbeOutcome, detail: str, now: float) -> None:
        """Take in what a probe showed; an answer about somebody who is not suspected any more says nothing."""
        client_id = self._probed.pop(tag, None)
        suspicion = self._of.get(client_id) if client_id is not None else None
        if client_id is None or suspicion is None or suspicion.tag != tag:
            return
        suspicion.tag = None
        suspicion.detail = detail
        if outcome not in _PROOF:
            suspicion.refusal = ""
            if not suspicion.evidence:
                del self._of[client_id]
                return
        if outcome in _PROOF:
            self._declare(client_id, f"process died ({detail}; {suspicion.evidence})", now + _VERDICT_DELAY)
            return
        if outcome is ProbeOutcome.ALIVE and suspicion.link and suspicion.doubt_due is None:
            suspicion.doubt_due = now + _DOUBT
        suspicion.probe_due = now + _PROBE_INTERVAL

    def gave_up(self, client_id: int, cause: str, now: float) -> None:
        """Note that a client has gone because it did not hear the coordinator any more: others may do so, too."""
        self._declare(client_id, cause, now + _GIVEN_UP_DELAY)

    def verdict_is_due(self, now: float) -> bool:
        """Return whether it is time to name the dead."""
        return self._verdict_due is not None and self._verdict_due <= now

    def doubtful(self, now: float) -> tuple[int, str] | None:
        """Return a client that lives, and whose link stayed broken for too long all the same, with the cause."""
        for client_id, suspicion in self._of.items():
            if suspicion.doubt_due is not None and suspicion.doubt_due <= now:
                return client_id, f"{suspicion.link} ({suspicion.detail})"
        return None

    def deadline(self) -> float | None:
        """Return when to look again."""
        dues = [due for s in self._of.values() for due in (s.probe_due, s.doubt_due) if due is not None]
        return min([*dues, *([] if self._verdict_due is None else [self._verdict_due])], default=None)

    def _declare(self, client_id: int, cause: str, verdict_due: float) -> None:
        self.dead.setdefault(client_id, cause)
        self._verdict_due = self._verdict_due or verdict_due

    def _probe_at(self, suspicion: _Suspicion, now: float) -> None:
        if suspicion.tag is None:
            suspicion.probe_due = now
