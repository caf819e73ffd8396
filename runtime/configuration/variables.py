"""The variables that bringup reads, and those that look like one of them and are none: most likely misspelt."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields

from ...devices.registry import offered_types
from ...processes.report import LAUNCHER
from .options import UNAVAILABLE, Options

_ARGUMENTS = ("on_failure", "reset", "local_device_ids", "num_logical_cpu_devices", "device_type")
_CLOSE = 0.7

_PREFIX = "BRINGUP_"

VARIABLES = frozenset(
    {
        *(f"{_PREFIX}{field.name.upper()}" for field in fields(Options)),
        "BRINGUP_JOBS",
        "BRINGUP_CLIENT_ID",
        "BRINGUP_NUM_CLIENTS",
        "BRINGUP_JOB_NAME",
        "BRINGUP_LOCAL_CLIENT_ID",
        "BRINGUP_NUM_LOCAL_CLIENTS",
        "BRINGUP_HOST_CUDA_VISIBLE_DEVICES",
        LAUNCHER,
        "BRINGUP_CPU_LOCATION",
        "BRINGUP_SIM_FAULT",
        "BRINGUP_SIM_START_SECONDS",
        "BRINGUP_SIM_TOPOLOGY",
    }
)
"""All variables that begin with `BRINGUP_` and mean something to bringup itself."""


def unknown_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that begin with `BRINGUP_` and have no effect, each with a sentence that says so.

    Those that begin with `BRINGUP_<TYPE>_` are the settings of a backend that an installed distribution offers.
    """
    strange = sorted(name for name in environ if name.startswith(_PREFIX) and name not in VARIABLES)
    if strange:
        of_backends = tuple(f"{_PREFIX}{device_type}_" for device_type in offered_types())
        strange = [name for name in strange if not name.startswith(of_backends)]
    return {name: f"{name} is no variable that bringup reads, and has no effect{_advice(name)}" for name in strange}


def _advice(name: str) -> str:
    argument = name.removeprefix(_PREFIX).lower()
    if argument in _ARGUMENTS:
        return f": {argument} is an argument of initialize() only"
    offered = [known.removeprefix(_PREFIX) for known in VARIABLES if known[len(_PREFIX) :].lower() not in UNAVAILABLE]
    closest = difflib.get_close_matches(name.removeprefix(_PREFIX), offered, n=1, cutoff=_CLOSE)
    return (
        f": the closest is {_PREFIX}{closest[0]}" if closest else ": `bringup resolve` shows the options that there are"
    )
