"""The health of a GPU, from its NVML readings at start and now. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ..base import Health
from .xids import Severity, explain_xid

_COOL = "check fans, airflow or coolant"

_SLOWDOWNS = (
    (0x08, "its hardware has halved the clock or more (HW slowdown: heat, power brake or a power supply at its limit)"),
    (0x40, "its hardware slows it down because of heat (HW thermal slowdown): " + _COOL),
    (0x80, "the power supply makes it slow down (HW power brake): check the power of rack and host"),
    (0x20, "the driver slows it down because of heat (SW thermal slowdown): " + _COOL),
)
"""Reasons for a lower clock that are not the everyday ones (idle, a power cap, clocks that somebody set)."""

_GENERAL_SLOWDOWN = 0x08

# The programs on it may go on until they are done.
_DRAIN_AND_RESET = 4

_RECOVERY = {
    1: "reset the GPU (nvidia-smi --gpu-reset), after ending all programs on it",
    2: "reboot the host",
    3: "end all programs that use the GPU from other GPUs, then look again",
    _DRAIN_AND_RESET: "let the programs on the GPU end, start no others, then reset it",
    5: "recover the IMEX domain of its NVLink fabric",
    6: "reset the PCI bus of the GPU",
    7: "reboot the whole system",
}
"""The recovery actions of the driver, by its numbers for them."""

_REPLACE = "drain the host, reset the GPU, and have it replaced if this happens again"


@dataclass(frozen=True, slots=True)
class GpuReading:
    """The NVML readings of a GPU at one time; `None` where the GPU, driver or library has none.

    Attributes:
        failure: why it does not answer, empty where it does.
        is_lost: whether it has fallen off the bus.
        needs_reset: whether it answers nothing until it is reset.
        temperature: degrees Celsius.
        slowdown_at: the temperature from which on its hardware slows it down.
        shutdown_at: the temperature at which it turns itself off.
        slowdown: the reasons for its clock, as the library's bits.
        uncorrectable: ECC errors that could not be corrected since the driver was loaded.
        remap_pending: whether memory rows are to be remapped at the next reset.
        remap_failed: whether a row could not be remapped.
        retired_pages: how many pages were taken out of use (before Ampere).
        retirement_pending: whether pages are to be retired at the next reset.
        recovery: the library's number for what is to be done with the GPU, 0 for nothing.
        links_up: its NVLinks that are up.
        xids: the errors that the driver has reported, each with how often.
    """

    failure: str = ""
    is_lost: bool = False
    needs_reset: bool = False
    temperature: int | None = None
    slowdown_at: int | None = None
    shutdown_at: int | None = None
    slowdown: int | None = None
    uncorrectable: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    retired_pages: int | None = None
    retirement_pending: bool | None = None
    recovery: int | None = None
    links_up: frozenset[int] | None = None
    xids: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Assessment:
    """The assessment of a GPU.

    Attributes:
        faults: why it cannot be relied on, with what to do.
        notices: what is worth a word, and no reason to stop.
        is_permanent: whether a fault cannot pass by itself.
    """

    faults: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    is_permanent: bool = False


def assess(first: GpuReading, now: GpuReading) -> Assessment:
    """Compare two readings.

    Args:
        first: from the start of the backend: errors that were counted before are history.
        now: the latest; its `xids` are all since the start.
    """
    if now.is_lost:
        lost = (
            "it has fallen off the bus: the driver cannot reach it over PCI Express any more; power-cycle the host, "
            "and reseat or replace the GPU if it happens again"
        )
        return Assessment((lost,), is_permanent=True)
    if now.needs_reset:
        asked = f"it must be reset before it can be used again (nvidia-smi --gpu-reset): {now.failure}"
        return Assessment((asked,), is_permanent=True)
    if now.failure:
        return Assessment((f"it does not answer the driver: {now.failure}; look for NVRM in the kernel log (dmesg)",))
    faults = tuple(_faults(first, now))
    is_permanent = any(explain_xid(number).is_fault for number, _ in now.xids) or bool(now.remap_failed)
    return Assessment(faults, tuple(_notices(now)), bool(faults) and is_permanent)


def baseline(first: GpuReading, now: GpuReading) -> GpuReading:
    """Return the reading to compare later ones with: the first, completed by the first known value of each field.

    A count of errors that has fallen was begun anew.
    """
    counts = [reading.uncorrectable for reading in (first, now) if reading.uncorrectable is not None]
    links = now.links_up if first.links_up is None else first.links_up
    return replace(first, uncorrectable=min(counts, default=None), links_up=links)


def health_of(assessments: Iterable[tuple[str, Assessment]]) -> Health:
    """Merge assessments, those with faults first.

    Args:
        assessments: each with the name of what it is on; a name may come more than once.
    """
    faults: dict[str, list[str]] = defaultdict(list)
    notices: dict[str, list[str]] = defaultdict(list)
    is_permanent = False
    for name, assessment in assessments:
        faults[name] += assessment.faults
        notices[name] += assessment.notices
        is_permanent |= assessment.is_permanent
    told = [name for name in faults if faults[name]]
    told += [name for name in notices if notices[name] and not faults[name]]
    return Health(
        ok=not any(faults.values()),
        detail=". ".join(f"{name}: {'; '.join(faults[name] + notices[name])}" for name in told),
        permanent=is_permanent,
    )


def _faults(first: GpuReading, now: GpuReading) -> Iterator[str]:
    for number, count in now.xids:
        if (xid := explain_xid(number)).is_fault:
            todo = "power-cycle the host" if xid.severity is Severity.REBOOT else _REPLACE
            yield f"the driver reported {xid}{_times(count)}; {todo}"
    known = first.uncorrectable is not None and now.uncorrectable is not None
    if known and (new := (now.uncorrectable or 0) - (first.uncorrectable or 0)) > 0:
        yield f"its memory had {new} uncorrectable ECC errors since start; {_REPLACE}"
    if now.remap_failed:
        yield "a broken row of its memory could not be remapped: it has no spare rows left there; replace the GPU"
    if now.recovery and now.recovery != _DRAIN_AND_RESET:
        yield f"its driver asks for an action: {_RECOVERY.get(now.recovery, f'number {now.recovery}')}"
    if first.links_up and now.links_up is not None and (down := sorted(first.links_up - now.links_up)):
        links = ", ".join(map(str, down))
        yield f"NVLinks {links} went down since start (nvidia-smi nvlink --status shows them); {_REPLACE}"
    if _is_reached(now.temperature, now.shutdown_at):
        yield f"it is at {now.temperature} C, and turns itself off at {now.shutdown_at} C: stop its work, and cool it"


def _notices(now: GpuReading) -> Iterator[str]:
    for number, count in now.xids:
        if not (xid := explain_xid(number)).is_fault:
            yield f"the driver reported {xid}{_times(count)}"
    reasons = [(bit, text) for bit, text in _SLOWDOWNS if (now.slowdown or 0) & bit]
    # The general reason comes along with one that says more.
    special = [(bit, text) for bit, text in reasons if bit != _GENERAL_SLOWDOWN] or reasons
    at = "" if now.temperature is None else f"at {now.temperature} C, "
    yield from (f"{at}{text}" for _, text in special)
    if not special and _is_reached(now.temperature, now.slowdown_at):
        yield f"it is at {now.temperature} C, and slows down from {now.slowdown_at} C on: {_COOL}"
    if now.recovery == _DRAIN_AND_RESET:
        yield f"its driver asks for an action: {_RECOVERY[now.recovery]}"
    if now.remap_pending:
        yield "broken rows of its memory are remapped at its next reset: reset it when its work is done"
    if now.retirement_pending:
        yield f"broken pages of its memory ({now.retired_pages or 'some'}) are retired at its next reset: reset it soon"


def _times(count: int) -> str:
    return f", {count} times" if count > 1 else ""


def _is_reached(temperature: int | None, limit: int | None) -> bool:
    return temperature is not None and limit is not None and 0 < limit <= temperature
