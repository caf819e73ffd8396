"""Bounds on time: until clients are told of a failure, and until calls are answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bringup.runtime.machines.pacing import fallback_patience, test_period

from .ground_truth import has_had_only, is_clean, is_dirty_throughout
from .machine_runner import LATENESS_MAX

if TYPE_CHECKING:
    from .job import Job
    from .process import Process
    from .world import World

_PROBED = 0.02
"""Seconds that the verdict on a dead client waits for others that died with it."""

_READ_AFTER_A_STOP = 1.5
"""Seconds that a coordinator which was stopped takes to hear what others have said meanwhile."""

_DOUBT = 1.0
_HELD = 2.0
"""Seconds within which all tell their steps, where the network is slow, too."""

_BEYOND_TIMEOUT = 1.0
"""Seconds beyond heartbeat_timeout within which silence must be told."""


@dataclass(frozen=True, slots=True)
class _Doom:
    """A fault with its victim and time; `holds` says later whether the job still cannot live with it.

    Attributes:
        witness: who has to be reached, too, for others to be told in time.
        is_silence: whether it is that nothing is heard any more.
        is_alive: whether its neighbours hear it all the same.
    """

    job: Job
    culprit: Process
    witness: Process
    since: float
    what: str
    is_silence: bool
    is_alive: bool
    holds: Callable[[], bool]

    @property
    def seconds_of_silence(self) -> float:
        """The time within which silence must be told."""
        configs = [member.config for member in (self.culprit, *self.job.members.values())]
        timeouts = (config.heartbeat_timeout + config.heartbeat_interval for config in configs)
        world = self.culprit.world
        seconds = max(timeouts) + _BEYOND_TIMEOUT + 4 * world.network.latency.worst + world.patience
        return seconds + (_seconds_of_doubt(self.culprit) if self.is_alive else 0.0)


def _seconds_of_doubt(process: Process) -> float:
    """Return the time until a client finds out that it alone cannot reach the coordinator: its group reports for it."""
    if not process.world.group_size:
        return 0.0
    interval, timeout = process.config.heartbeat_interval, process.config.heartbeat_timeout
    return test_period(process.world.num_clients, timeout) + fallback_patience(interval, timeout) + 2 * interval


def process_crashed(culprit: Process) -> None:
    """A process has died just now: the connection breaks, its port is asked and refuses, and all are told."""
    # A coordinator that was started anew at once refuses to take up sessions that it does not know.
    hops = 4 if culprit.hosted is None else 6
    seconds = hops * culprit.world.network.latency.worst + _PROBED
    if culprit.job is not None and any(end > culprit.world.clock.now - 60.0 for _, end in culprit.job.host.stops):
        seconds += _READ_AFTER_A_STOP
    if not culprit.wants_to_leave:
        _expect(culprit, seconds, "crashed")


def process_gave_up(culprit: Process) -> None:
    """A process has failed on its own just now, and says so, unless it is killed before that has left."""
    seconds = 2 * culprit.world.network.latency.worst
    _expect(culprit, seconds, "gave up", lambda: not culprit.has_crashed)


def link_broke(culprit: Process, neighbour: Process) -> None:
    """The ring link between two live processes has broken just now."""

    def holds() -> bool:
        return not culprit.wants_to_leave and not neighbour.wants_to_leave

    if holds():
        _expect(culprit, 5 * culprit.world.network.latency.worst + _DOUBT, "lost a link", holds, witness=neighbour)


def process_is_silent(culprit: Process, holds: Callable[[], bool], what: str, *, is_alive: bool = False) -> None:
    """A process cannot be heard from now on; where that `holds` for long enough, all are told.

    Where it `is_alive`, its group hears it.
    """
    if not culprit.wants_to_leave:
        _expect(culprit, 0.0, what, holds, is_silence=True, is_alive=is_alive)


def program_stalled(culprit: Process, timeout: float) -> None:
    """A program hangs from now on, which the coordinator is to report after `timeout` seconds."""
    interval = culprit.config.heartbeat_interval
    seconds = timeout + interval + 2 * culprit.world.network.latency.worst + LATENESS_MAX
    if culprit.world.group_size:
        # What a wave is to tell is told directly where no wave comes around.
        seconds += interval + fallback_patience(interval, culprit.config.heartbeat_timeout)
    _expect(culprit, seconds, "stalled")


def barrier_was_called(process: Process, ticket: int, timeout: float) -> None:
    """A user waits at a barrier from now on, for no longer than `timeout` seconds."""
    world, since = process.world, process.world.clock.now

    def check() -> None:
        is_done = process.is_over or process.is_stopped or any(done.ticket == ticket for _, done in process.barriers)
        is_late = not is_done and process.job is not None and is_clean(world, process, process.job.host, since)
        assert not is_late, f"{process.name} still waits at a barrier, {timeout} s after {since:.6f}"

    world.clock.after(timeout + 4 * world.network.latency.worst + world.patience, check)


def call_was_made(process: Process, what: str, is_done: Callable[[], bool]) -> None:
    """A program waits for an answer of the services from now on, which depends on nobody else."""
    world, job, since = process.world, process.job, process.world.clock.now
    assert job is not None
    # A connection may have to be opened first.
    seconds = 4 * world.network.latency.worst + world.patience

    def check(since: float) -> None:
        if is_done() or process.is_over or job.host.is_over or job.verdicts:
            return
        is_late = not process.is_stopped and is_clean(world, process, job.host, since)
        assert not is_late, f"{process.name} still waits for {what}, {seconds:.6f} s after {since:.6f}"
        world.clock.after(seconds, check, world.clock.now)

    world.clock.after(seconds, check, since)


def point_was_reached(process: Process, is_answered: Callable[[], bool]) -> None:
    """A user is held at a preemption point: until all that are not leaving have come to a first one, and told it."""
    world, job, since = process.world, process.job, process.world.clock.now
    assert job is not None

    def check() -> None:
        if is_answered() or process.is_over or process.is_stopped or job.verdicts:
            return None
        waited_for = [m for m in job.members.values() if not m.wants_to_leave and not m.has_begun_steps]
        if waited_for or not all(is_clean(world, m, job.host, since) for m in job.members.values()):
            return world.clock.after(_HELD, check)
        return world.clock.after(_HELD, check_again)

    def check_again() -> None:
        is_free = is_answered() or process.is_over or job.verdicts
        clean = all(is_clean(world, member, job.host, since) for member in job.members.values())
        assert is_free or not clean, f"{process.name} is held at a preemption point since {since:.6f}, and by nobody"

    world.clock.after(_HELD, check)


def _expect(
    culprit: Process,
    seconds: float,
    what: str,
    holds: Callable[[], bool] = lambda: True,
    *,
    witness: Process | None = None,
    is_silence: bool = False,
    is_alive: bool = False,
) -> None:
    if culprit.job is None or culprit.is_over:
        return
    clock = culprit.world.clock
    text = f"{culprit.name} {what} at {clock.now:.6f}"
    doom = _Doom(culprit.job, culprit, witness or culprit, clock.now, text, is_silence, is_alive, holds)
    clock.after(
        (doom.seconds_of_silence if is_silence else seconds) + culprit.world.patience, _check_first, culprit.world, doom
    )


def _check_first(world: World, doom: _Doom) -> None:
    if not doom.holds():
        return
    host = doom.job.host
    clear = [has_had_only(world, p, host, doom.since, is_silence=doom.is_silence) for p in (doom.culprit, doom.witness)]
    if doom.culprit is host is doom.witness or (all(clear) and not host.is_over):
        _nobody_is_untold(world, doom, doom.since)
    _check_again(world, doom)


def _check_again(world: World, doom: _Doom) -> None:
    """Whoever has an excuse has it until he has had a full timeout of peace, or has heard nothing for one."""
    if any(not member.is_over and not member.is_stopped for member in doom.job.members.values()):
        world.clock.after(doom.seconds_of_silence, _look_again, world, doom, world.clock.now)


def _look_again(world: World, doom: _Doom, since: float) -> None:
    if doom.is_silence and not doom.holds():
        return  # a coordinator that was stopped, too, may have forgiven it
    _nobody_is_untold(world, doom, since)
    _check_again(world, doom)


def _nobody_is_untold(world: World, doom: _Doom, since: float) -> None:
    job, now = doom.job, world.clock.now
    for client_id, member in job.members.items():
        if member.is_over or member.is_stopped or member is doom.culprit or job.taken_in_at[client_id] > since:
            continue
        if member.is_in_dark:
            continue  # it waits for an answer to its registration, until its deadline
        assert not is_clean(world, member, job.host, since), f"{doom.what}; {member.name} is not told by {now:.6f}"
        alone_since = max(since, member.heard_host_at)
        is_alone = is_dirty_throughout(world, member, job.host, alone_since)
        is_long = now - alone_since >= doom.seconds_of_silence + _seconds_of_doubt(member)
        assert not is_alone or not is_long, f"{doom.what}; {member.name}, which hears nobody, goes on at {now:.6f}"
