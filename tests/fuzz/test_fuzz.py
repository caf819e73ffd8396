"""Random input of every kind that a stranger, a neighbour, a user or an environment can give: a little of it each time.

`python -m tests.fuzz --inputs 1000000` checks much of it.
"""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bringup.errors import ConfigurationError
from bringup.runtime.configuration.plan import make_plan
from bringup.runtime.configuration.request import Request
from bringup.transport.tcp.handshake import HELLO_BYTES, decode_hello

from .coordinator import fuzz_coordinator
from .first_bytes import ONES, fuzz_first_bytes
from .http2 import fuzz_http2
from .services import fuzz_services
from .settings import fuzz_settings


def any_seed() -> int:
    """Return a seed; a failure shows it among the local variables."""
    return random.randrange(2**32)


@pytest.mark.parametrize("name", ONES)
def test_first_bytes(name: str) -> None:
    assert fuzz_first_bytes(name, 1_000, seed=any_seed()).total() == 1_000


@settings(max_examples=500)
@given(st.binary(min_size=HELLO_BYTES, max_size=HELLO_BYTES))
def test_any_bytes_are_a_hello_that_says_them_or_none(data: bytes) -> None:
    hello = decode_hello(data)
    assert hello is None or hello.encode() == data


def test_settings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    assert fuzz_settings(tmp_path, 1_000, seed=any_seed()).total() == 1_000


@settings(max_examples=300)
@given(jobs=st.text(max_size=60), client_id=st.text(max_size=10), num_clients=st.text(max_size=10))
def test_any_text_describes_a_job_or_is_refused(jobs: str, client_id: str, num_clients: str) -> None:
    environ = {"BRINGUP_JOBS": jobs, "BRINGUP_CLIENT_ID": client_id, "BRINGUP_NUM_CLIENTS": num_clients}
    try:
        plan = make_plan(Request(overrides={"insecure": True}), environ)
    except ConfigurationError:
        return
    assert 0 <= plan.job.client_id < plan.job.num_clients


async def test_messages_to_a_coordinator(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    assert await fuzz_coordinator(500, seed=any_seed())


async def test_calls_of_the_services(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    assert (await fuzz_services(1_000, seed=any_seed())).total() == 1_000


async def test_frames_of_http2_and_none() -> None:
    assert await fuzz_http2(500, seed=any_seed())
