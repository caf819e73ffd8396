"""Variables that look like one of ours, and are none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import bringup
import bringup.sync
from bringup.devices import registry
from bringup.runtime.configuration.environment import VARIABLES, unknown_variables


@pytest.mark.parametrize("name", sorted(VARIABLES))
def test_what_is_read_is_known(name: str) -> None:
    assert unknown_variables({name: "1"}) == {}


def test_every_variable_in_the_source_is_known() -> None:
    named = {
        name
        for path in Path(bringup.__file__).parent.rglob("*.py")
        for name in re.findall(r"[\"'](BRINGUP_[A-Z_]*[A-Z])[\"']", path.read_text())
    }
    assert named <= VARIABLES


def test_a_misspelt_one_has_the_closest_name() -> None:
    environ = {"BRINGUP_HEARTBEAT_TIMOUT": "3", "BRINGUP_JOB": "a:1", "HOME": "/", "BRINGUPS": "x"}
    none = "is no variable that bringup reads, and has no effect"
    assert unknown_variables(environ) == {
        "BRINGUP_HEARTBEAT_TIMOUT": f"BRINGUP_HEARTBEAT_TIMOUT {none}: the closest is BRINGUP_HEARTBEAT_TIMEOUT",
        "BRINGUP_JOB": f"BRINGUP_JOB {none}: the closest is BRINGUP_JOBS",
    }


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("BRINGUP_ON_FAILURE", "on_failure is an argument of initialize() only"),
        ("BRINGUP_STATUS_ADDRESSES", "`bringup resolve` shows the options that there are"),
        ("BRINGUP_QUUX", "`bringup resolve` shows the options that there are"),
    ],
)
def test_no_name_is_proposed_that_would_not_do(name: str, advice: str) -> None:
    assert unknown_variables({name: "1"})[name].endswith(f"has no effect: {advice}")


def test_backends_of_other_distributions_have_settings_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bringup.runtime.configuration.environment.offered_types", lambda: ["NPU"])
    assert list(unknown_variables({"BRINGUP_NPU_CORES": "4", "BRINGUP_MPU_CORES": "4"})) == ["BRINGUP_MPU_CORES"]
    assert registry.offered_types() == sorted(registry.offered_types())


def test_initialize_warns_of_it(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("BRINGUP_STALL_TIMOUT", "5")
    with bringup.sync.initialize("CPU"):
        pass
    (told,) = (message for message in caplog.messages if "BRINGUP_STALL_TIMOUT" in message)
    assert "BRINGUP_STALL_TIMEOUT" in told
