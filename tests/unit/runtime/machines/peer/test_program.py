"""The position of a program: steps, waits, and the time at work between them."""

from __future__ import annotations

from bringup.runtime.machines.peer.program import OwnProgram


def test_a_program_that_reports_no_step_has_no_state() -> None:
    program = OwnProgram()
    program.wait_begins()
    assert program.state() is None
    assert program.is_waiting


def test_a_step_that_is_reported_again_is_no_progress() -> None:
    program = OwnProgram()
    program.report(41, 1.0)
    program.report(41, 5.0)
    state = program.state()
    assert state is not None
    assert (state.step, state.age(6.0), state.busy(6.0)) == (41, 5.0, 5.0)
    program.report(7, 6.0)  # a program may start anew
    state = program.state()
    assert state is not None
    assert (state.step, state.busy(6.0)) == (7, 0.0)


def test_of_several_waits_the_last_that_ends_begins_the_time_at_work() -> None:
    program = OwnProgram()
    program.report(41, 0.5)
    program.wait_begins()
    program.wait_begins()
    program.wait_ends(2.0)
    state = program.state()
    assert state is not None
    assert state.busy(9.0) == 0.0
    program.wait_ends(6.25)
    state = program.state()
    assert state is not None
    assert (state.age(7.0), state.busy(7.0)) == (6.5, 0.75)
