"""Progress reports: from any thread, as few events for the machine as it needs."""

from __future__ import annotations

import asyncio
import threading

from bringup.runtime.drivers.progress import ProgressReports


async def test_many_reports_of_other_threads_become_few_events_and_the_last_state_arrives() -> None:
    loop = asyncio.get_running_loop()
    reports = ProgressReports(loop.time, loop.call_soon_threadsafe)
    events = reports.events()

    def program() -> None:
        for step in range(10_000):
            reports.report(step)

    thread = threading.Thread(target=program)
    thread.start()
    count, step = 0, -1
    while step < 9_999:
        count, step = count + 1, (await anext(events)).step
    thread.join()
    assert count < 1_000
    await events.aclose()


async def test_waits_are_told_once_the_program_has_reported_a_step() -> None:
    loop = asyncio.get_running_loop()
    reports = ProgressReports(loop.time, loop.call_soon_threadsafe)
    events = reports.events()
    with reports.waiting():
        assert reports.state is None
    reports.report(3)
    with reports.waiting():
        assert (await anext(events)).is_waiting
    state = await anext(events)
    assert not state.is_waiting
    assert state == reports.state
    await events.aclose()
