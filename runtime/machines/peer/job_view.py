"""One client's view of the job, and the errors that it explains."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from ....errors import BringupError, PeerFailedError
from ....transport.wire.messages import (
    Beat,
    Behind,
    Formed,
    HeartbeatAck,
    MemberInfo,
    MemberUpdate,
    Overdue,
    Step,
    Verdict,
)
from ..failure_errors import (
    RENDEZVOUS_TIMEOUT,
    coordinator_lost,
    devices_failed,
    name_clients,
    not_joined,
    of_verdict,
    rendezvous_timeout,
)
from ..id_ranges import COORDINATOR, name_ids, unpack_ids
from ..phases import Phase, place_of
from ..roster import Roster
from .config import PeerConfig


@dataclass(frozen=True, slots=True)
class ClientState:
    """What a client last reported; `reconnects` counts how often its session was taken up again."""

    phase: str
    healthy: bool
    health: str
    reconnects: int = 0


_WELL = MemberUpdate(-1, True, "")
"""Of a client of which no change was told."""


class JobView:
    """The other clients, by the coordinator's messages.

    Attributes:
        formed: its place among the members, once all have registered.
        roster: the members, once they have come over the ring.
        host: client 0, once the coordinator has answered.
        updated_at: when the coordinator last answered a heartbeat of this client, or of the leader of its group; ages
            count from then.
        seen: the number of the change up to which all are known.
        dial_reason: why the coordinator cannot be reached, or could not, until it has answered.
        link_reason: why the link to the right neighbour cannot be opened yet.
    """

    def __init__(self, config: PeerConfig, now: float) -> None:
        self._config = config
        self.formed: Formed | None = None
        self.roster: Roster | None = None
        self.host: MemberInfo | None = None
        self.updated_at = now
        self.seen = 0
        self.dial_reason = ""
        self.link_reason = ""
        self._is_registered = False
        self._missing: tuple[int, ...] = ()
        self._num_missing = 0
        self._behind: Behind | None = None
        self._updates: dict[int, MemberUpdate] = {}
        self._phase = Phase.RENDEZVOUS
        self._overdue: dict[int, float] = {}
        self._slowest: tuple[Step, ...] = ()
        self._passed_on = 0
        self._to_pass_on: dict[int, MemberUpdate] = {}
        self._steps: dict[int, tuple[int, float]] = {}
        self._failed: dict[int, str] = {}

    def acknowledge(self, ack: HeartbeatAck, now: float) -> None:
        """Take in an answer; one to a heartbeat has news."""
        if not self._is_registered:
            self._is_registered, self.dial_reason = True, ""
        self.host = ack.host[0] if ack.host else self.host
        if ack.sequence == 0:
            return
        self.updated_at = now
        self._missing, self._num_missing = ack.missing, ack.num_missing
        updates = {update.client_id: update for update in ack.updates}
        self._updates.update(updates)
        self._to_pass_on.update(updates)
        self._learn(ack.overdue, ack.steps, ack.behind, now)
        self.seen = max(self.seen, ack.news)

    def told_by(self, beat: Beat, now: float) -> bool:
        """Take in the news of a wave; returns whether no change was left out."""
        if beat.answered_age >= 0.0 and (updated_at := now - beat.answered_age) > self.updated_at:
            self.updated_at = updated_at
            self._learn(beat.overdue, beat.slowest, beat.behind, now)
        if beat.news >= self.seen:
            self._updates.update({update.client_id: update for update in beat.updates})
        is_gapless = beat.since <= self.seen
        if is_gapless:
            self.seen = max(self.seen, beat.news)
        return is_gapless

    def tell(self, beat: Beat, now: float) -> Beat:
        """Return a wave that begins here with the news since the last one did."""
        age = now - self.updated_at
        slowest = tuple([replace(step, age=step.age + age) for step in self._slowest])
        updates, self._to_pass_on = tuple(self._to_pass_on.values()), {}
        since, self._passed_on = self._passed_on, self.seen
        overdue = tuple([Overdue(client_id, late) for client_id, late in self._overdue.items()])
        return replace(
            beat,
            since=since,
            news=self.seen,
            overdue=overdue,
            updates=updates,
            slowest=slowest,
            behind=() if self._behind is None else (self._behind,),
        )

    def _learn(
        self, overdue: tuple[Overdue, ...], slowest: tuple[Step, ...], behind: tuple[Behind, ...], now: float
    ) -> None:
        self._overdue = {late.client_id: late.age for late in overdue}
        self._slowest = slowest
        self._behind = behind[0] if behind else None
        self._steps.update({step.client_id: (step.step, now - step.age) for step in slowest})

    def form(self, formed: Formed) -> None:
        """Note that all have registered."""
        self.formed = formed
        self.host = next((info for info in formed.neighbours if info.client_id == COORDINATOR), self.host)

    def commit(self) -> None:
        """Note that all are ready: only then does the coordinator commit."""
        self._phase = Phase.READY

    def address_of(self, client_id: int) -> str:
        """Return the address of a client, empty where it is not known."""
        if self.roster is not None:
            return self.roster[client_id].address
        if self._config.addresses is not None:
            return self._config.addresses[client_id]
        if self.formed is not None:
            known = (info.address for info in self.formed.neighbours if info.client_id == client_id)
            if (address := next(known, "")) or client_id != COORDINATOR:
                return address
        return self._config.coordinator_address if client_id == COORDINATOR else ""

    def end(self, error: BaseException | None) -> None:
        """Note how the job ended: with an error, or by all leaving it in order."""
        if error is None:
            self._updates = {}
            self._phase = Phase.CLOSED
        elif isinstance(error, PeerFailedError):
            if error.client_id is not None:
                self._failed[error.client_id] = error.cause
        else:
            self._failed[self._config.client_id] = f"{type(error).__name__}: {error}"

    def state_of(self, client_id: int, own: ClientState | None = None, *, is_leaving: bool = False) -> ClientState:
        """Return the state of a client, `own` for this one; after a failure its end."""
        update = self._updates.get(client_id, _WELL)
        phase = Phase.LEAVING if is_leaving and self._phase is Phase.READY else self._phase
        state = own or ClientState(phase, update.healthy, update.health, update.reconnects)
        if (cause := self._failed.get(client_id)) is not None:
            return ClientState(Phase.FAILED, False, cause, state.reconnects)
        return state

    def age_of(self, client_id: int, now: float) -> float:
        """Return the seconds since a client is known to have been heard by the coordinator."""
        if client_id == self._config.client_id:
            return 0.0
        return now - self.updated_at + self._overdue.get(client_id, 0.0)

    def step_of(self, client_id: int, now: float) -> tuple[int, float] | None:
        """Return the last known step of another client's program, and its age in seconds."""
        mark = self._steps.get(client_id)
        return None if mark is None else (mark[0], now - mark[1])

    def missing(self) -> dict[int, str]:
        """Return the clients that are not known to have registered, with their addresses; of very many, the first."""
        if self.formed is not None:
            return {}
        return self._with_addresses(unpack_ids(self._missing) if self._is_registered else [COORDINATOR])

    def waiting_for(self, own_phase: Phase) -> str:
        """Return what this client waits for, for a text; empty if that is not known."""
        missing = self.missing()
        if missing:
            named = name_clients(missing, max(self._num_missing - len(missing), 0))
            return named + (f": {self.dial_reason}" if self.dial_reason else "")
        if self.formed is None:
            return ""
        phase, laggards, num = self._laggards(own_phase)
        if self._config.client_id in laggards and own_phase is Phase.DEVICES:
            kind = f"{self._config.device_type} devices" if self._config.device_type else "devices"
            return f"the {kind} of this client"
        text = f"{name_ids(laggards, num - len(laggards))} in phase {phase}"
        return text + (f" ({self.link_reason})" if self.link_reason else "")

    # Errors.

    def timed_out(self, own_phase: Phase) -> BringupError:
        """Return the error for a bring-up that took too long."""
        if self.formed is not None:
            _, laggards, num = self._laggards(own_phase)
            return self._rendezvous_timeout(laggards, num, f"waiting for {self.waiting_for(own_phase)}")
        if self._is_registered:
            return self._rendezvous_timeout(self.missing(), self._num_missing, "")
        reason = f"it hosts the coordinator, so nothing is known of the others; {self.dial_reason or 'no answer'}"
        return self._rendezvous_timeout([COORDINATOR], 1, reason)

    def of_verdict(self, verdict: Verdict) -> BringupError:
        """Return the error for the coordinator's verdict."""
        if verdict.error == RENDEZVOUS_TIMEOUT:
            return self._rendezvous_timeout(list(unpack_ids(verdict.missing)), verdict.num_missing, verdict.cause)
        self._failed = dict.fromkeys(unpack_ids(verdict.also), f"it failed with client {verdict.client_id}")
        return of_verdict(verdict)

    def not_joined(self, missing: tuple[int, ...], num_missing: int) -> BringupError:
        """Return the error for a shutdown that some live clients did not join in time."""
        assert self.roster is not None
        ids, own = list(unpack_ids(missing)), self._config
        more = max(num_missing - len(ids), 0)
        first = self.roster[ids[0]]
        return not_joined(own.client_id, own.shutdown_timeout, self._with_addresses(ids), more, first, Phase.READY)

    def coordinator_lost(self, own_phase: Phase, cause: str) -> BringupError:
        """Return the error for a lost coordinator."""
        host = "" if self.host is None else self.host.hostname
        return coordinator_lost(self._config.coordinator_address, host, own_phase, cause)

    def devices_failed(self, own_phase: Phase, cause: str) -> BringupError:
        """Return the error for unhealthy devices of this client."""
        own = self._config
        return devices_failed(own.client_id, self.address_of(own.client_id), own.hostname, own_phase, cause)

    def link_broken(self, own_phase: Phase, client_id: int, cause: str) -> BringupError:
        """Return the error for a broken ring link that no verdict explained."""
        address = self.address_of(client_id)
        return PeerFailedError(
            f"the ring link with client {client_id} ({address}) broke in phase {own_phase}: {cause}; "
            "the coordinator did not say why in time",
            client_id=client_id,
            address=address,
            phase=own_phase,
            cause=cause,
        )

    def _rendezvous_timeout(self, missing: Collection[int], num_missing: int, reason: str) -> BringupError:
        """Return the error for `num_missing` clients, of which the first are known."""
        own, size = self._config, self._config.num_clients
        more_missing = max(num_missing - len(missing), 0)
        known = range(max(missing) + 1 if more_missing else size) if self._is_registered else [own.client_id]
        present = [client_id for client_id in known if client_id not in missing]
        return rendezvous_timeout(
            size,
            own.initialization_timeout,
            self._with_addresses(missing),
            self._with_addresses(present),
            reason,
            more_missing=more_missing,
            more_present=size - len(missing) - more_missing - len(present) if self._is_registered else 0,
            came=self.formed is not None,
        )

    def _laggards(self, own_phase: Phase) -> tuple[str, set[int], int]:
        """Return the earliest phase, as far as is known, clients that are in it, and their number in all."""
        own, behind = self._config.client_id, self._behind
        if behind is None:
            phase, laggards, num = str(self._phase), set(range(self._config.num_clients)), self._config.num_clients
        else:
            phase, laggards, num = behind.phase, set(unpack_ids(behind.ids)), behind.num_clients
        # Where it has left the phase it is still counted, unless it is listed: whether it was is not known then.
        is_counted = own in laggards or (own_phase == phase and len(laggards) < num and own > max(laggards))
        others, num_others = laggards - {own}, num - is_counted
        if not others or place_of(own_phase) < place_of(phase):
            return own_phase, {own}, 1
        return (phase, others | {own}, num_others + 1) if own_phase == phase else (phase, others, num_others)

    def _with_addresses(self, client_ids: Iterable[int]) -> dict[int, str]:
        return {client_id: self.address_of(client_id) for client_id in client_ids}
