"""Fixtures for the tests of device backends."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator

import pytest

from ...lib.backend_doubles import threads_end


@pytest.fixture
async def no_error_goes_unseen() -> AsyncIterator[None]:
    """Wait for the end of the threads, and have futures complain whose errors were never retrieved."""
    yield
    await threads_end()
    gc.collect()
