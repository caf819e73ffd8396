"""Every numeric option at both ends of its range, in a job of two real clients, and just beyond them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import pytest

import bringup.sync
from bringup.errors import ConfigurationError
from bringup.runtime.configuration.options import Options
from bringup.testing.job import LocalJob
from bringup.transport.tcp.interfaces import free_ports

TINY, LONGEST = 1e-9, 1e9

WORKS: list[dict[str, Any]] = [
    {"initialization_timeout": LONGEST},
    {"heartbeat_interval": 0.001},
    {"heartbeat_interval": 0.001, "heartbeat_timeout": 1.0},
    {"heartbeat_interval": LONGEST - 1, "heartbeat_timeout": LONGEST},
    {"heartbeat_timeout": LONGEST},
    {"shutdown_timeout": LONGEST},
    {"device_timeout": LONGEST},
    {"health_interval": 0.001},
    {"health_interval": LONGEST},
    {"stall_timeout": LONGEST},
    {"stall_timeout": TINY},
    {"group_size": 0},
    {"group_size": 2},
    {"kv_max_bytes": 2**62},
    {"ring_port": 0},
]
"""With these a job comes up, works and is left in order."""

FAILS = [
    ({"initialization_timeout": TINY}, "RendezvousTimeoutError"),
    ({"device_timeout": TINY}, "DeviceTimeoutError"),
]
"""With these it cannot come up, and says why."""

REFUSED = {
    "initialization_timeout": [0, -1, math.inf, math.nan, 2 * LONGEST],
    "heartbeat_interval": [0, -1, 0.0009, TINY, math.inf, math.nan, 10.0, LONGEST],
    "heartbeat_timeout": [0, -1, 1.0, math.inf, math.nan, 2 * LONGEST],
    "shutdown_timeout": [0, -1, math.inf, math.nan, 2 * LONGEST],
    "device_timeout": [0, -1, math.inf, math.nan, 2 * LONGEST],
    "health_interval": [0, -1, 0.0009, TINY, math.inf, math.nan, 2 * LONGEST],
    "stall_timeout": [0, -1, math.inf, math.nan, 2 * LONGEST],
    "group_size": [-1, 1, 2**32],
    "kv_max_bytes": [-1, 2**62 + 1, 2**80],
    "ring_port": [-1, 65536],
}
"""Just beyond, and far beyond."""


@pytest.fixture(scope="module")
def job() -> Iterator[LocalJob]:
    with LocalJob(2) as job:
        job.start()
        yield job


@pytest.mark.parametrize("options", WORKS, ids=str)
def test_at_the_end_of_a_range_a_job_comes_up_works_and_ends(job: LocalJob, options: dict[str, Any]) -> None:
    job.initialize(device_type="SIM", **options)
    for name, arguments in (("barrier", {"name": "b"}), ("all_reduce", {"array": [1]}), ("shutdown", {})):
        for call in job.call(name, **arguments):
            call.value()


@pytest.mark.parametrize(("options", "error"), FAILS, ids=str)
def test_where_there_is_no_time_every_client_says_so(job: LocalJob, options: dict[str, Any], error: str) -> None:
    errors = [call.error().error for call in job.call("initialize", device_type="SIM", **options)]
    assert error in errors
    assert set(errors) <= {error, "PeerFailedError"}


def test_ports_at_the_end_of_the_range(job: LocalJob) -> None:
    (free,) = free_ports(1)
    calls = [
        job.clients[0].call("initialize", device_type="SIM", ring_port=65535),
        job.clients[1].call("initialize", device_type="SIM", ring_port=free),
    ]
    for call in (*calls, *job.call("shutdown")):
        call.value()


def test_a_store_that_may_hold_nothing_says_so() -> None:
    with bringup.sync.initialize("CPU", kv_max_bytes=0) as system:
        with pytest.raises(ConfigurationError, match="kv_max_bytes"):
            system.kv.set("a", "b")
        assert system.kv.try_get("a") is None


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in REFUSED.items() for value in values])
def test_beyond_the_range_it_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ConfigurationError, match=name):
        Options.resolve(None, {name: value}, {})


def test_every_numeric_option_is_here() -> None:
    numeric = {field.name for field in dataclasses.fields(Options) if str(field.type).startswith(("float", "int"))}
    assert numeric == REFUSED.keys() == {name for options in WORKS for name in options}
