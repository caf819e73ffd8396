"""Oracle of verdicts and errors: they name only clients that a fault has struck."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bringup.errors import (
    CoordinatorLostError,
    DeviceFailedError,
    PeerFailedError,
    RegistrationRefusedError,
    RendezvousTimeoutError,
    TopologyError,
)
from bringup.runtime.machines.id_ranges import unpack_ids
from bringup.transport.wire.messages import Verdict

from .ground_truth import is_clean, is_unheard_for_a_reason
from .network import EVER

if TYPE_CHECKING:
    from .job import Job
    from .process import Process
    from .world import World

_NEVER_EARLY = 1e-9
_LATE = 0.001
_REGISTRATION = 1.0
"""Seconds within which a client has registered where nothing is in its way."""

_REDIALS = 2.0
"""Seconds that a job may lose while connections break again and again."""


def verdict_is_true(world: World, job: Job, verdict: Verdict) -> None:
    """Check the coordinator's verdict on a job."""
    blamed = job.members[verdict.client_id]
    text = f"the coordinator blames {blamed.name}: {verdict.error}: {verdict.cause}"
    match verdict.error, verdict.cause:
        case "RendezvousTimeoutError", _:
            patience = world.clock.now - blamed.began - blamed.config.initialization_timeout
            assert patience >= -_NEVER_EARLY, f"{text}, whose patience has not ended"
            assert all(member.up is None for member in job.members.values()), f"{text}; but the job is up"
        case "TopologyError", _:
            assert world.garblers or world.misprinters or world.has_disputed_cores, text
        case "CoordinatorLostError", _:
            _host_is_to_blame(world, job, text)
        case "DeviceFailedError", cause:
            said = None if blamed.failed is None else blamed.failed[1]
            assert isinstance(said, DeviceFailedError), f"{text}; but it raised {said!r}"
            assert blamed.is_sick, f"{text}; but its devices are well"
            assert blamed.config.fails_when_unhealthy, f"{text}; but that is to be no failure"
            assert cause in str(said), f"{text}; but it raised {said!r}"
        case _, cause if cause.startswith("process died"):
            also = [job.members[client_id] for client_id in unpack_ids(verdict.also)]
            gave_up = blamed.failed is not None and isinstance(blamed.failed[1], CoordinatorLostError)
            assert not gave_up or _may_be_given_up(world, job, blamed), (
                f"{text}; but it gave up a coordinator that slept"
            )
            for member in (blamed, *also):
                _is_dead_or_silent(world, job, member, text, must_be_dead=member is blamed)
                is_held = member is not blamed or "its ring link" in cause or not member.is_let_go
                assert is_held, f"{text}; but {member.name} wanted to leave, and did"
        case _, cause if cause.startswith("no heartbeat"):
            also = [job.members[client_id] for client_id in unpack_ids(verdict.also)]
            for member in (blamed, *also):
                _is_dead_or_silent(world, job, member, text)
        case _, cause if cause.startswith("it lost the coordinator"):
            assert _may_be_given_up(world, job, blamed), f"{text}; but it is not cut off"
        case _, cause if cause.startswith("its ring link"):
            assert verdict.client_id in world.network.broken_links, f"{text}; but no link of it was broken"
        case _, cause if cause.startswith("no progress"):
            timeout = job.config.stall_timeout
            assert timeout is not None, text
            # While that was on its way, it may have got further after all.
            works_for = 0.0 if blamed.works_since is None else world.clock.now - blamed.works_since
            seconds = max(works_for, blamed.longest_work)
            assert seconds >= timeout, f"{text}; but it was at work for {seconds} s at most, and else waited for others"
        case _, cause if cause.startswith("it shut down"):
            assert blamed.leave_wished_at is not None, text
        case _, cause:
            said = blamed.failed
            assert said is not None, f"{text}; but it has not failed"
            assert cause.startswith(type(said[1]).__name__), f"{text}; but it raised {said[1]!r}"
            has_given_up = isinstance(said[1], CoordinatorLostError)
            assert not has_given_up or _may_be_given_up(world, job, blamed), f"{text}; but it is not cut off"


def _host_is_to_blame(world: World, job: Job, text: str) -> None:
    """Check that others have given the coordinator up, and have not just died."""
    others = [member for member in job.members.values() if member is not job.host]
    gave_up = [o for o in others if o.failed is not None and isinstance(o.failed[1], CoordinatorLostError)]
    patience = job.config.heartbeat_timeout - job.config.heartbeat_interval
    stops = [end - begin for begin, end in job.host.stops if end > world.clock.now - job.config.heartbeat_timeout]
    # It cannot know whether those have given it up that have gone since and were not heard for as long as that takes.
    unheard = [o for o in others if not o.is_listening and world.clock.now - (o.heard_at or 0.0) >= patience]
    assert gave_up or unheard or sum(stops) >= patience, f"{text}; but nobody has given it up"
    assert stops or all(other.is_over for other in others), f"{text}; but it was not stopped, and others live"


def _may_be_given_up(world: World, job: Job, blamed: Process) -> bool:
    """Return whether a coordinator may take a client that has lost it for the cause: it may be the cause itself, which
    it cannot know as long as it has not heard of all others that they have gone.
    """
    now, interval = world.clock.now, job.config.heartbeat_interval
    slept = [end - begin for begin, end in job.host.stops if now - job.config.heartbeat_timeout < end <= now]
    if any(seconds > 2 * interval + _LATE for seconds in slept):
        return blamed.is_cut_off  # a coordinator that slept knows that it may be the cause
    others = [member for member in job.members.values() if member is not job.host]
    lately = world.clock.now - world.network.latency.worst
    have_gone = all(
        o.gone_at < lately and not o.wants_to_leave and is_clean(world, o, o, job.taken_in_at[o.client_id])
        for o in others
    )
    return blamed.is_cut_off or not have_gone or len(others) == 1


def _is_dead_or_silent(world: World, job: Job, member: Process, text: str, *, must_be_dead: bool = False) -> None:
    if not member.is_listening:
        return
    assert not must_be_dead, f"{text}; but it lives"
    if member.failed is not None and isinstance(member.failed[1], CoordinatorLostError):
        return  # it has said so itself
    assert member.heard_at is not None
    silence = world.clock.now - member.heard_at
    early = silence < job.config.heartbeat_timeout - _NEVER_EARLY
    assert not early, f"{text}; but {member.name} was heard {silence} s ago"
    reason = is_unheard_for_a_reason(world, member, job.host, answers=False)
    assert reason, f"{text}; but {member.name} lives and could be reached"


def error_is_true(world: World, process: Process, error: BaseException) -> None:
    """Check the error that a client raises."""
    if process.has_failed_itself:
        return
    text = f"{process.name} raises {error!r}"
    _one_verdict_for_all(world, process, error, text)
    match error:
        case CoordinatorLostError():
            _coordinator_is_lost(world, process, error, text)
        case PeerFailedError():
            _peer_has_failed(world, process, error, text)
        case RegistrationRefusedError(field="client_id" | "incarnation"):
            others = [other for other in world.processes if other.client_id == process.client_id]
            assert len(others) > 1, f"{text}; but it is the only one"
        case RegistrationRefusedError():
            assert process.is_stranger, text
        case RendezvousTimeoutError():
            _time_is_up(world, process, error, text)
        case TopologyError():
            assert world.garblers or world.misprinters or world.has_disputed_cores, text
        case _:
            raise AssertionError(text)


def _one_verdict_for_all(world: World, process: Process, error: BaseException, text: str) -> None:
    """Whoever can be reached hears the verdict, and nothing else."""
    job = process.job
    if job is None or not job.verdicts or not isinstance(error, PeerFailedError) or _is_verdict(job, error):
        return
    if job.host.failed is not None and job.host.failed[0] < job.verdicts[0][0]:
        return  # its coordinator judges while it is ending, too late for everybody to hear
    at, verdict = job.verdicts[0]
    # What is said while the verdict is on its way may be its own conclusion.
    since = min(process.heard_host_at, at)
    is_late = world.clock.now - at > world.network.latency.worst
    could_hear = is_late and job.host.is_alive and is_clean(world, process, job.host, since)
    assert not could_hear, f"{text}; but the verdict, on client {verdict.client_id}, is: {verdict.cause}"


def _coordinator_is_lost(world: World, process: Process, error: CoordinatorLostError, text: str) -> None:
    job = process.job
    assert job is not None, f"{text}; but it was never taken in"
    if job.host.gone_at < EVER or _is_verdict(job, error):
        return
    assert not error.cause.startswith("process died"), f"{text}; but it lives"
    if error.cause.startswith("it did not answer"):
        assert process.leave_wished_at is not None, text
        assert not is_clean(world, process, job.host, process.leave_wished_at), f"{text}; but it could"
        cuts = (cut for cut in world.network.cuts if cut.touches(process.client_id, 0))
        process.is_cut_off = any(cut.until > process.leave_wished_at for cut in cuts)
        return
    assert process is not job.host, f"{text}; but it hosts it"
    reason = is_unheard_for_a_reason(world, job.host, process, answers=True)
    process.is_cut_off = is_unheard_for_a_reason(world, job.host, process, answers=True, for_stops=False)
    # A coordinator that has judged answers no more heartbeats; whoever did not get the verdict hears nothing.
    assert reason or job.verdicts, f"{text}; but it lives and could be reached"


def _peer_has_failed(world: World, process: Process, error: PeerFailedError, text: str) -> None:
    job = process.job if process.job is not None else world.jobs[-1]
    if any(_is_verdict(other, error) for other in world.jobs):
        return
    # Its own conclusion, after a link broke and the coordinator did not say why for a full timeout.
    assert error.client_id is not None
    since = world.clock.now - process.config.heartbeat_timeout
    assert not is_clean(world, process, job.host, since), f"{text}; but the coordinator does not, and could be asked"
    assert world.network.is_link_troubled(error.client_id) or job.has_lost(error.client_id), text


def _is_verdict(job: Job, error: PeerFailedError) -> bool:
    return any(v.client_id == error.client_id and v.cause == error.cause for _, v in job.verdicts[:1])


def _time_is_up(world: World, process: Process, error: RendezvousTimeoutError, text: str) -> None:
    earliest = min(other.began + other.config.initialization_timeout for other in world.processes)
    assert world.clock.now >= earliest - _NEVER_EARLY, f"{text} too early"
    _nobody_who_is_missing_could_come(world, process, error, text)
    job = process.job
    if job is not None and job.committed_at is not None:
        at = job.committed_at + world.network.latency.worst
        has_come = at < world.clock.now and is_clean(world, process, job.host, at - _REDIALS, for_own_stops=False)
        assert not has_come, f"{text}; but the job is up since {job.committed_at:.6f}, and it could have heard so"
    if job is None or job.host.gone_at < EVER or not is_clean(world, process, job.host, process.began):
        return
    if job.is_complete:
        # Broken connections alone hold nobody up.
        assert _is_held_up(world, job, earliest), f"{text}; but nothing held anybody up"
        return
    # What it knows is as old as the coordinator's last answer.
    age = 2 * world.network.latency.worst + process.config.heartbeat_interval
    present = {client_id for client_id, at in job.taken_in_at.items() if at < world.clock.now - age}
    assert not present & error.missing.keys(), f"{text}; but clients {present & error.missing.keys()} are there"


def _nobody_who_is_missing_could_come(world: World, process: Process, error: RendezvousTimeoutError, text: str) -> None:
    """Check that whoever is missing has had no peace in which to register."""
    host = world.host
    if host is None or host.is_stopped:
        return
    since = world.clock.now - _REGISTRATION - 8 * world.network.latency.worst
    for missing in (process, *map(world.current, error.missing)):
        if missing is None or missing.job is not None or missing.is_stranger:
            continue
        has_had_time = max(missing.began, host.began) < since and not missing.dials.outages
        assert not has_had_time or not is_clean(world, missing, host, since), (
            f"{text}; but {missing.name} could have come since {since:.6f}"
        )


def _is_held_up(world: World, job: Job, deadline: float) -> bool:
    """Return whether a job of which all clients have come has a reason not to come up."""
    members = job.members.values()
    if world.network.cuts or world.network.broken_links or job.host.overloads:
        return True
    if any(m.stops or m.gone_at < EVER for m in members):
        return True
    if any(m.dials.hindrances or m.dials.outages for m in members):
        return True
    if any(m.backend_seconds is None or m.backend_error is not None for m in members):
        return True
    came = max(max(job.taken_in_at.values()), max(m.began + (m.backend_seconds or 0.0) for m in members))
    hops = 2 * world.num_clients + 50
    return came + hops * world.network.latency.worst + _REDIALS > deadline
