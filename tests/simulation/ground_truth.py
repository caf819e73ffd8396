"""Ground truth beside the machines' view: stops, cuts and broken connections, with their times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from bringup.transport.attempts import retry_delay

from .network import EVER, RECONNECT_MAX

if TYPE_CHECKING:
    from .process import Process
    from .world import World

Interval = tuple[float, float]

_LATE = 0.1
"""Seconds that timers, redials and a few messages within one process may add up to."""

_LEADERS_SILENCE = 0.5
"""Of the time-out, for which a leader may be cut off until its clients are heard, and hear, by themselves."""


def clear_stretches(impairments: Iterable[Interval], since: float, until: float) -> Iterator[Interval]:
    """Yield the parts of a stretch of time in which nothing was impaired."""
    clear_from = since
    for begin, end in sorted(impairments):
        if min(begin, until) > clear_from:
            yield clear_from, min(begin, until)
        clear_from = max(clear_from, end)
    if until > clear_from:
        yield clear_from, until


def is_unheard_for_a_reason(
    world: World, heard: Process, judge: Process, *, answers: bool, for_stops: bool = True
) -> bool:
    """Return whether somebody's silence of a full timeout, until now, has a reason outside of the machines.

    It has none where one heartbeat must have come through: either at once, over a connection that stood, or over a new
    one, which is asked for when half the timeout has passed in silence.

    Args:
        world: of both.
        heard: who was not heard.
        judge: who did not hear; its own stops are no reason, unless they are too short for it to notice.
        answers: whether what was not heard are answers, for which questions must come through.
        for_stops: whether it is a reason that the one who was not heard was stopped.
    """
    now, config = world.clock.now, judge.config
    since = now - config.heartbeat_timeout
    latency = world.network.latency
    slack = _LATE + (2 if answers else 1) * latency.worst
    own_stops = [stop for stop in judge.stops if stop[1] - stop[0] <= 2 * config.heartbeat_interval + slack]
    client = judge if answers else heard
    cuts = [(c.since, c.until, c.hole) for c in world.network.cuts if c.touches(client.client_id, 0)]
    stops = [*(heard.stops if for_stops else ()), *own_stops]
    redialled = [(t, t + _LATE + 8 * latency.worst) for t in client.breaks]
    hindered = [(begin, end + _LATE + 8 * latency.worst) for begin, end in client.dials.hindrances]
    unheard = [*stops, *redialled, *hindered, *((begin, end + hole + latency.resend) for begin, end, hole in cuts)]
    enough = config.heartbeat_interval + slack
    if world.group_size:
        enough += _LEADERS_SILENCE * config.heartbeat_timeout  # that may have been its leader's to use
    if any(end - begin > enough for begin, end in clear_stretches(unheard, since, now)):
        return False
    interval = client.config.heartbeat_interval
    redial_at = since + max(config.heartbeat_timeout / 2, 2.5 * interval)
    impaired = [*stops, *hindered, *((begin, end) for begin, end, _ in cuts)]
    enough = RECONNECT_MAX + slack + 6 * latency.worst
    return not any(end - max(begin, redial_at) > enough for begin, end in clear_stretches(impaired, since, now))


def _disturbances(world: World, process: Process, host: Process, *, for_own_stops: bool = True) -> list[Interval]:
    """Return when a process could not talk with the one that hosts the coordinator as it is used to."""
    latency = world.network.latency
    cuts = [(c.since, c.until + c.hole + RECONNECT_MAX) for c in world.network.cuts if c.touches(process.client_id, 0)]
    breaks = [(t, t + _LATE + 8 * latency.worst) for t in (*process.breaks, *host.breaks)]
    late = retry_delay(EVER) + _LATE + 8 * latency.worst
    hindered = [(begin, end + late) for p in (process, host) for begin, end in p.dials.hindrances]
    overloads = [(begin, end + _LATE) for begin, end in host.overloads]
    own_stops = process.stops if for_own_stops else ()
    # Whoever has not heard the host for a while is dialling it anew when that goes on, or one that was started since.
    hosts = world.processes_of(host.client_id)
    host_stops = [(begin, end + _LATE + 8 * latency.worst) for each in hosts for begin, end in each.stops]
    # A name that was looked up once is known from then on; the coordinator may have to ask for a suspect's.
    return [*own_stops, *host_stops, *overloads, *cuts, *breaks, *hindered, *host.dials.outages]


def is_clean(world: World, process: Process, host: Process, since: float, *, for_own_stops: bool = True) -> bool:
    """Return whether nothing has come between a process and the coordinator since a time."""
    disturbances = _disturbances(world, process, host, for_own_stops=for_own_stops)
    return all(end < since or begin > world.clock.now for begin, end in disturbances)


def has_had_only(world: World, culprit: Process, host: Process, since: float, *, is_silence: bool) -> bool:
    """Return whether nothing else has come between a culprit and the coordinator than, if anything, its silence."""
    overlapping = [i for i in _disturbances(world, culprit, host) if i[1] >= since and i[0] <= world.clock.now]
    return all(is_silence and begin == since for begin, _ in overlapping)


def is_dirty_throughout(world: World, process: Process, host: Process, since: float) -> bool:
    """Return whether a process that ran could not talk with the coordinator at any time since then."""
    cuts = [(cut.since, cut.until) for cut in world.network.cuts if cut.touches(process.client_id, 0)]
    is_running = not any(end > since for _, end in process.stops)
    return is_running and not any(True for _ in clear_stretches([*cuts, *host.stops], since, world.clock.now))
