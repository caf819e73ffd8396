"""The outcome of a job of processes: each client's end, the root cause, the exit status, the summary. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..errors import PeerFailedError
from ..processes.endings import exit_status, name_end
from ..processes.report import ErrorReport
from ..runtime.machines.id_ranges import name_ids

KeyT = TypeVar("KeyT", bound=Hashable)

_LINES_MAX = 6  # of a traceback, and of a longer message: the cause stands at their ends


@dataclass(frozen=True, slots=True)
class Ended:
    """A client's process that has ended.

    Attributes:
        client_id: The client.
        pid: Its process.
        returncode: Its exit status, or minus the signal that ended it.
        was_asked: Whether the launcher had asked it to end by then.
        state: Its last state by its own report: empty, `starting`, `up` or `left`.
        report: Its own report of the error that ended it, if it wrote one.
        last_lines: The last lines of its standard error.
    """

    client_id: int
    pid: int
    returncode: int
    was_asked: bool = False
    state: str = ""
    report: ErrorReport | None = None
    last_lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a job.

    Attributes:
        ended: All clients that were started, in the order of their ends.
        first_failure: The first client that failed without having been asked to end; `None` where none did.
        signal: The signal that ended the launcher, or `None`.
        root: The client whose failure caused those of the others.
        absent: The clients that ended without an error while others waited for them.
    """

    ended: tuple[Ended, ...]
    first_failure: Ended | None
    signal: int | None
    root: Ended | None = None
    absent: tuple[int, ...] = ()

    @property
    def exit_status(self) -> int:
        """The launcher's exit status: 0, or that of the root cause, as a shell gives it (128 and the signal)."""
        for failed in (self.root, self.first_failure):
            if failed is not None and failed.returncode != 0 and not failed.was_asked:
                return exit_status(failed.returncode)
        if self.signal is not None:
            return 128 + self.signal
        return 1 if self.absent else 0


def root_of(first_failure: Ended, ended: Sequence[Ended]) -> Ended:
    """Return the client whose failure came first: the one that the others name, or else the first that failed itself.

    Args:
        first_failure: The first that failed, as the launcher saw it; exits are often seen out of order.
        ended: All that have ended, in that order.
    """
    of_client = {one.client_id: one for one in ended}
    votes = Counter(
        culprit for one in ended if one.report is not None for culprit in one.report.culprits if culprit in of_client
    )
    # A client that blames others is not the root, unless all do, as on both sides of a cut.
    named = [culprit for culprit in votes if not _is_consequence(of_client[culprit])] or list(votes)
    if named:
        place = {one.client_id: position for position, one in enumerate(ended)}
        return of_client[max(named, key=lambda culprit: (votes[culprit], -place[culprit]))]
    own = [one for one in ended if one.returncode != 0 and one.report is not None and not one.was_asked]
    seen_first = of_client.get(first_failure.client_id, first_failure)
    return min(own, key=lambda one: one.report.at if one.report else 0.0, default=seen_first)


def describe_failure(root: Ended, ended: Sequence[Ended], host: str) -> list[str]:
    """The root cause in the first line, then its last lines, then the ends of the others."""
    if root.state == "left" and root.report is None:
        return _describe_orderly(ended)
    return [*_describe_root(root, ended, host), *_describe_others(root, ended)]


def describe_absence(absent: Sequence[Ended], waiting: Iterable[int], host: str) -> list[str]:
    """Lines for clients that ended without an error while others wait for them in `initialize()`."""
    pids = ", ".join(str(one.pid) for one in absent)
    process = "process" if len(absent) == 1 else "processes"
    ids = name_ids(one.client_id for one in absent)
    when = "before initialize()" if all(not one.state for one in absent) else "and does not come again"
    chosen = list(waiting)
    return [
        f"{ids} ({process} {pids} on {host}) ended with status 0 {when}, so that the job cannot come up",
        f"{name_ids(chosen)} waited for {'it' if len(absent) == 1 else 'them'} in vain, and {_were(chosen)} ended",
    ]


def _is_consequence(one: Ended) -> bool:
    return one.report is not None and bool(one.report.culprits)


def _describe_orderly(ended: Sequence[Ended]) -> list[str]:
    """Lines for clients that left their job in order and failed then: after a preemption all have a status for it."""
    lines = []
    for (state, returncode), ids in _grouped((one.state, one.returncode) for one in ended):
        chosen = name_ids(ended[place].client_id for place in ids)
        if returncode != 0:
            left = "left the job in order, and ended" if state == "left" else "ended"
            lines.append(f"{chosen} {left} with {name_end(returncode)}")
    return lines


def _describe_root(root: Ended, ended: Sequence[Ended], host: str) -> list[str]:
    report = root.report
    who = f"client {root.client_id} (process {root.pid} on {host if report is None else report.host})"
    if report is not None and not report.culprits:
        # Only the places: the error itself stands in the first line.
        trace = report.trace.rstrip("\n").split("\n")
        where = [line for line in trace if line.startswith(" ")][-_LINES_MAX:]
        first, *more = report.text.split("\n")
        # The whole text of a coordinator's verdict names the client once more.
        said = report.cause if report.error == PeerFailedError.__name__ else f"{report.error}: {first}"
        return [f"{who} failed first: {said}", *where, *more[:_LINES_MAX]]
    how = f"with {name_end(root.returncode)}"
    told = next((one.report for one in ended if one.report and root.client_id in one.report.culprits), None)
    if told is not None and told.missing:
        there = "was still in initialize()" if root.state else "had not called initialize()"
        return [f"{who} did not come to the job: it {there}" + ("" if root.was_asked else f", and ended {how}")]
    if told is not None and (root.was_asked or _is_consequence(root)):  # each blames another: not by how it ended
        return [f"{who} failed first: {told.cause.splitlines()[0] if told.cause else told.text}"]
    shown = () if root.returncode < 0 else root.last_lines
    return [f"{who} failed first, {how}", *(f"  {line}" for line in shown)]


def _describe_others(root: Ended, ended: Sequence[Ended]) -> list[str]:
    others = [one for one in ended if one.client_id != root.client_id]
    parts = []
    consequences = [one for one in others if _is_consequence(one) and not one.was_asked and one.returncode != 0]
    for error, places in _grouped(one.report.error if one.report else "" for one in consequences):
        parts.append(f"{name_ids(consequences[place].client_id for place in places)} failed because of it ({error})")
    own = [one for one in others if one.returncode != 0 and not one.was_asked and one not in consequences]
    for text, places in _grouped(_own_words(one) for one in own):
        parts.append(f"{name_ids(own[place].client_id for place in places)} failed, too, {text}")
    asked = [one.client_id for one in others if one.was_asked]
    if asked:
        parts.append(f"{name_ids(asked)} {_were(asked)} ended because of it")
    if not parts:
        return ["no other client was running"] if not others or all(one.returncode == 0 for one in others) else []
    return ["; ".join(parts)]


def _own_words(one: Ended) -> str:
    if one.report is None:
        return f"with {name_end(one.returncode)}"
    return f"with {one.report.error}: {one.report.text.splitlines()[0] if one.report.text else ''}"


def _were(ids: Sequence[int]) -> str:
    return "was" if len(ids) == 1 else "were"


def _grouped(keys: Iterable[KeyT]) -> list[tuple[KeyT, list[int]]]:
    """Each key once, in the order of their first places, with all its places."""
    places: dict[KeyT, list[int]] = defaultdict(list)
    for place, key in enumerate(keys):
        places[key].append(place)
    return list(places.items())
