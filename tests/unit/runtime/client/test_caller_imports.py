"""Imports in the thread that called `initialize()`."""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bringup.runtime.client.caller_imports import CallerImports

LONG = 60.0

NOTING = "import threading\nthread = threading.get_ident()\n"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a module that notes the thread that it is imported in."""
    name = f"imported_by_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(NOTING)
    monkeypatch.syspath_prepend(tmp_path)
    return name


async def test_an_event_loop_imports(module: str) -> None:
    imports = CallerImports()
    imports.serve(asyncio.get_running_loop())
    imported = await asyncio.to_thread(imports.import_module, module)
    assert imported.thread == threading.get_ident()
    assert await asyncio.to_thread(imports.import_module, module) is imported


def test_a_thread_that_blocks_imports_until_it_is_closed(module: str) -> None:
    imports = CallerImports()
    imports.serve(None)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(imports.import_module, module)
        asked.add_done_callback(lambda _: imports.close())
        imports.serve_blocking()
        assert asked.result(LONG).thread == threading.get_ident()


def test_without_a_caller_the_asker_imports(module: str) -> None:
    assert CallerImports().import_module(module).thread == threading.get_ident()


def test_where_the_loop_is_closed_the_asker_imports(module: str) -> None:
    imports = CallerImports()
    loop = asyncio.new_event_loop()
    imports.serve(loop)
    loop.close()
    assert imports.import_module(module).thread == threading.get_ident()


def test_a_caller_that_is_busy_is_not_waited_for_for_ever(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bringup.runtime.client.caller_imports._PATIENCE", 0.0)
    imports = CallerImports()
    imports.serve(None)  # and it never does
    assert imports.import_module(module).thread == threading.get_ident()


def test_a_busy_caller_that_has_imported_it_itself_is_not_waited_for(module: str) -> None:
    """Before, its loop had to be free once more: a blocking loop of training steps held the devices up."""
    imports = CallerImports()
    imports.serve(None)  # and it never does
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(imports.import_module, module)
        try:
            while not imports._pending and not asked.done():
                threading.Event().wait(0.001)
            imported = importlib.import_module(module)
            assert asked.result(LONG) is imported
        finally:
            imports.close()


def test_what_the_import_raises_is_raised() -> None:
    imports = CallerImports()
    imports.serve(None)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(imports.import_module, "no_such_module_anywhere")
        asked.add_done_callback(lambda _: imports.close())
        imports.serve_blocking()
        with pytest.raises(ModuleNotFoundError):
            asked.result(LONG)


def test_closing_refuses_what_waits_and_what_comes(module: str) -> None:
    imports = CallerImports()
    imports.serve(None)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(imports.import_module, module)
        while not imports._pending and not asked.done():
            threading.Event().wait(0.001)
        imports.close()
        with pytest.raises(ImportError, match="is over"):
            asked.result(LONG)
    with pytest.raises(ImportError, match="is over"):
        imports.import_module(module)
    assert module not in sys.modules
    imports.serve_blocking()
