"""When a GPU counts as ill, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bringup.devices.base import Health
from bringup.devices.gpu.health import Assessment, GpuReading, assess, baseline, health_of
from bringup.devices.gpu.xids import Severity, explain_xid

WELL = GpuReading(
    temperature=40,
    slowdown_at=90,
    shutdown_at=95,
    slowdown=1,
    uncorrectable=0,
    remap_pending=False,
    remap_failed=False,
    recovery=0,
    links_up=frozenset(range(18)),
)


def test_a_gpu_that_is_well() -> None:
    assert assess(WELL, WELL) == Assessment()


def test_a_gpu_of_which_nothing_is_known_is_well() -> None:
    assert assess(GpuReading(), GpuReading()) == Assessment()


@pytest.mark.parametrize(
    ("reading", "said", "is_permanent"),
    [
        (GpuReading(failure="GPU is lost", is_lost=True), "fallen off the bus", True),
        (GpuReading(failure="GPU requires reset", needs_reset=True), "must be reset before it can be used again", True),
        (GpuReading(failure="Unknown Error"), "does not answer the driver: Unknown Error", False),
        (replace(WELL, uncorrectable=2), "2 uncorrectable ECC errors since start", False),
        (replace(WELL, remap_failed=True), "could not be remapped", True),
        (replace(WELL, recovery=1), "reset the GPU (nvidia-smi --gpu-reset)", False),
        (replace(WELL, recovery=2), "reboot the host", False),
        (replace(WELL, recovery=99), "asks for an action: number 99", False),
        (replace(WELL, links_up=frozenset({0, *range(3, 18)})), "NVLinks 1, 2 went down since start", False),
        (replace(WELL, temperature=95), "it is at 95 C, and turns itself off at 95 C", False),
        (replace(WELL, xids=((79, 1),)), "Xid 79 (the GPU has fallen off the bus); power-cycle the host", True),
        (
            replace(WELL, xids=((13, 1), (48, 1))),
            "Xid 48 (an uncorrectable memory error (double-bit ECC)); drain the host",
            True,
        ),
    ],
)
def test_faults(reading: GpuReading, said: str, is_permanent: bool) -> None:
    assessment = assess(WELL, reading)
    assert said in assessment.faults[0]
    assert len(assessment.faults) == 1
    assert assessment.is_permanent is is_permanent


@pytest.mark.parametrize(
    ("reading", "said"),
    [
        (replace(WELL, temperature=92), "it is at 92 C, and slows down from 90 C on: check fans"),
        (replace(WELL, slowdown=0x40 | 0x08), "at 40 C, its hardware slows it down because of heat"),
        (replace(WELL, slowdown=0x08), "at 40 C, its hardware has halved the clock or more"),
        (replace(WELL, slowdown=0x80, temperature=None), "the power supply makes it slow down"),
        (replace(WELL, slowdown=0x20), "the driver slows it down because of heat"),
        (replace(WELL, remap_pending=True), "remapped at its next reset"),
        (replace(WELL, retired_pages=3, retirement_pending=True), "pages of its memory (3) are retired at its next"),
        (replace(WELL, recovery=4), "let the programs on the GPU end"),
        (replace(WELL, xids=((31, 2),)), "Xid 31 (a program's kernel accessed memory that is not its own), 2 times"),
        (replace(WELL, xids=((94, 1),)), "the driver reported Xid 94 (a memory error that was contained"),
        (replace(WELL, xids=((777, 1),)), "Xid 777 (see NVIDIA's catalog of Xids)"),
    ],
)
def test_what_is_only_worth_a_word(reading: GpuReading, said: str) -> None:
    assessment = assess(WELL, reading)
    assert not assessment.faults
    assert said in assessment.notices[0]
    assert len(assessment.notices) == 1


@pytest.mark.parametrize("slowdown", [0x1, 0x2, 0x4, 0x10, 0x100, 0x107])
def test_everyday_reasons_for_a_clock_are_not_worth_a_word(slowdown: int) -> None:
    assert assess(WELL, replace(WELL, slowdown=slowdown)) == Assessment()


def test_what_was_there_before_the_start_is_history() -> None:
    before = replace(WELL, uncorrectable=5, links_up=frozenset({0}))
    assert assess(before, replace(WELL, uncorrectable=5, links_up=frozenset({0}))) == Assessment()


def test_what_start_could_not_read_counts_from_its_first_reading_on() -> None:
    first = baseline(GpuReading(), GpuReading())
    assert assess(first, replace(WELL, uncorrectable=7)) == Assessment()
    first = baseline(first, replace(WELL, uncorrectable=7, links_up=frozenset({0, 1})))
    assert assess(first, replace(WELL, uncorrectable=7, links_up=frozenset({0, 1}))) == Assessment()
    first = baseline(first, GpuReading(failure="Unknown Error"))
    later = assess(first, replace(WELL, uncorrectable=9, links_up=frozenset({0})))
    assert [fault.partition(" since")[0] for fault in later.faults] == [
        "its memory had 2 uncorrectable ECC errors",
        "NVLinks 1 went down",
    ]


def test_a_count_that_was_begun_anew_hides_nothing() -> None:
    first = baseline(replace(WELL, uncorrectable=5), replace(WELL, uncorrectable=0))
    assert "had 1 uncorrectable" in assess(first, replace(WELL, uncorrectable=1)).faults[0]


def test_a_reading_that_fails_half_way_is_no_proof_of_errors() -> None:
    assert assess(WELL, replace(WELL, uncorrectable=None, slowdown=None, recovery=None, links_up=None)) == Assessment()


@pytest.mark.parametrize(
    ("number", "severity"),
    [
        (13, Severity.PROGRAM),
        (41, Severity.PROGRAM),
        (130, Severity.PROGRAM),
        (63, Severity.NOTICE),
        (149, Severity.NOTICE),
        (9999, Severity.NOTICE),
        (74, Severity.RESET),
        (119, Severity.RESET),
        (79, Severity.REBOOT),
    ],
)
def test_xids(number: int, severity: Severity) -> None:
    xid = explain_xid(number)
    assert (xid.number, xid.severity) == (number, severity)
    assert xid.is_fault is (severity in (Severity.RESET, Severity.REBOOT))
    assert xid.meaning


def test_faults_come_before_what_is_only_worth_a_word() -> None:
    assessments = [
        ("GPU 0", Assessment(notices=("is warm",))),
        ("GPU 1", Assessment()),
        ("GPU 2", Assessment(("is broken",), ("is warm",), is_permanent=True)),
        ("GPU 2", Assessment(("gave wrong data",))),
    ]
    assert health_of(assessments) == Health(
        ok=False, detail="GPU 2: is broken; gave wrong data; is warm. GPU 0: is warm", permanent=True
    )
    assert health_of(assessments[:2]) == Health(ok=True, detail="GPU 0: is warm")
    assert health_of([]) == Health(ok=True)
