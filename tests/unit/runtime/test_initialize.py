"""Misuse of the result of `initialize()`."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import subprocess
import sys
import warnings

import pytest

import bringup
import bringup.sync
from bringup.errors import ConfigurationError, NotInitializedError
from bringup.runtime.configuration.request import Request

HINTS = ("await bringup.initialize", "async with bringup.initialize", "bringup.sync.initialize")


def assert_hints(text: str) -> None:
    for hint in HINTS:
        assert hint in text


def test_both_faces_take_the_fields_of_a_request() -> None:
    fields = {field.name: field.default for field in dataclasses.fields(Request)}
    fields["overrides"] = inspect.Parameter.empty
    for face in (bringup.initialize, bringup.sync.initialize):
        parameters = inspect.signature(face).parameters
        assert {name: each.default for name, each in parameters.items()} == fields
        assert list(parameters) == list(fields)
    annotations = {name: each.annotation for name, each in inspect.signature(bringup.initialize).parameters.items()}
    blocking = {name: each.annotation for name, each in inspect.signature(bringup.sync.initialize).parameters.items()}
    assert annotations == blocking
    del annotations["overrides"]
    assert annotations.items() <= Request.__annotations__.items()


def test_one_that_is_never_awaited_is_warned_of() -> None:
    with pytest.warns(RuntimeWarning, match="never awaited") as caught:
        bringup.initialize("CPU")
    assert_hints(str(caught[0].message))


def test_with_says_what_to_write() -> None:
    with pytest.raises(TypeError) as caught, bringup.initialize("CPU"):  # type: ignore[attr-defined]
        pass
    assert_hints(str(caught.value))


def test_attributes_of_a_system_say_what_to_write() -> None:
    with pytest.raises(AttributeError, match="client_id") as caught:
        bringup.initialize("CPU").client_id  # type: ignore[attr-defined]  # noqa: B018
    assert_hints(str(caught.value))


def test_asyncio_run_says_what_to_write() -> None:
    started = bringup.initialize("CPU")
    with pytest.raises((ValueError, TypeError)) as caught:
        asyncio.run(started)  # type: ignore[arg-type]
    assert_hints(str(caught.value))
    with pytest.warns(RuntimeWarning):
        del started, caught


def test_protocols_of_python_find_nothing_there() -> None:
    started = bringup.initialize("CPU")
    assert not hasattr(started, "__len__")
    assert not hasattr(started, "_repr_html_")
    with pytest.warns(RuntimeWarning):
        del started


def test_one_that_was_awaited_is_not_warned_of() -> None:
    async def main() -> None:
        async with bringup.initialize("CPU") as system:
            assert system.num_clients == 1
        await (await bringup.initialize("CPU")).shutdown()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(main())


def test_without_an_asyncio_loop_nothing_is_started() -> None:
    awaiting = bringup.initialize("CPU").__await__()
    with pytest.raises(ConfigurationError, match=r"bringup\.sync\.initialize"):
        next(awaiting)
    with pytest.raises(NotInitializedError):
        bringup.current()


async def test_a_coroutine_that_is_closed_while_it_waits_leaves_no_client() -> None:
    waiting = bringup.initialize("SIM", jobs="127.0.0.1:1,127.0.0.1:2", client_id=1).__await__()
    next(waiting)
    assert "phase" in not_up_yet()
    waiting.close()
    with pytest.raises(NotInitializedError, match="no active system"):
        bringup.current()


def not_up_yet() -> str:
    with pytest.raises(NotInitializedError) as caught:
        bringup.current()
    return str(caught.value)


def test_a_blocking_program_is_told_once_of_its_own_current(caplog: pytest.LogCaptureFixture) -> None:
    async def on_a_loop() -> str:
        return bringup.current().job_id

    with bringup.sync.initialize("CPU") as system:
        assert asyncio.run(on_a_loop()) == bringup.sync.current().job_id == system.job_id
        assert not caplog.messages
        bringup.current()
        bringup.current()
    (told,) = caplog.messages
    assert "bringup.sync.current()" in told


def test_loading_bringup_does_not_hold_up_the_loop() -> None:
    script = """
import asyncio, sys, threading, bringup
loaded_by = []
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name in ("numpy", "bringup.runtime.client.client"):
            loaded_by.append(threading.current_thread() is threading.main_thread())
sys.meta_path.insert(0, Watch())
async def main():
    async with bringup.initialize("CPU"):
        pass
asyncio.run(main())
print(loaded_by)
"""
    run = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=True, text=True)
    assert run.stdout.strip() == "[False, False]"
