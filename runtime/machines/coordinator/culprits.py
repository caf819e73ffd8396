"""Whom the coordinator names when clients have died, or have given it up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..detector import Detector
from ..id_ranges import format_ids, name_ids
from .suspicion import Suspicions

_HOST = 0
_CAUSES_MAX = 3


@dataclass(frozen=True, slots=True)
class Culprit:
    """The client to name, or the coordinator's own, and why.

    Attributes:
        also: the clients to name with it.
        is_host: whether the coordinator itself is what was lost.
    """

    client_id: int
    cause: str
    also: tuple[int, ...] = ()
    is_host: bool = False


def culprit_of(suspicions: Suspicions, judge: Detector, num_clients: int, now: float) -> Culprit:
    """Return whom to name of the dead.

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
                _HOST,
                f"{what}, and {name_ids(dead)} {'has' if len(dead) == 1 else 'have'} gone: {_causes(dead)}",
                is_host=True,
            )
        if 1 < len(dead) == num_clients - 1:
            what = "all other clients have gone, as they do when this one is stopped or cut off for too long"
            return Culprit(_HOST, f"{what}: {_causes(dead)}", is_host=True)
    first = next(iter(killed or dead))
    return Culprit(first, dead[first], tuple(client_id for client_id in dead if client_id != first))


def _causes(dead: Mapping[int, str]) -> str:
    by_cause: dict[str, list[int]] = {}
    for client_id, cause in dead.items():
        by_cause.setdefault(cause, []).append(client_id)
    texts = [f"client{'s' * (len(who) > 1)} {format_ids(who)}: {cause}" for cause, who in by_cause.items()]
    return "; ".join([*texts[:_CAUSES_MAX], *(["..."] if len(texts) > _CAUSES_MAX else [])])
