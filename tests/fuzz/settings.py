"""Random arguments and environment variables of `initialize()`: refused with a reason, or a plan."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from bringup.errors import ConfigurationError
from bringup.runtime.configuration.environment import VARIABLES
from bringup.runtime.configuration.options import Options
from bringup.runtime.configuration.plan import Plan, make_plan
from bringup.runtime.configuration.request import Request

SECRET = "5ec4e7" * 10 + "5ec4"
"""A token that no text may show."""

VALUES = [
    *("", " ", "0", "1", "-1", "+1", "007", "1_0", "1e3", "nan", "inf", "-inf", "1e999", "1.5", "٣", "0x10", "9" * 30),
    *("true", "False", "yes", "on", "maybe", "report", "fail", "None", "null"),
    *("127.0.0.1:9000", "127.0.0.1:9000,127.0.0.1:9001", "node-0:9000,node-1:9001", "[::1]:9,[::1]:8", "a:b,,c"),
    *(
        "0.0.0.0",
        "::",
        "localhost",
        "10.0.0.1:70000",
        "[::1",
        "::1%eth0",
        "/bns/ab/borg/job/0:1",
        "-host-:1",
        "a" * 300,
    ),
    *("\x00", "\n", "\x1b[31m", "\u2028", "größe", "\udc80", "x" * 70_000, "/dev/null", "/", "/proc/self/mem"),
]
PIECES = [
    ",",
    ":",
    "[",
    "]",
    "%",
    "/",
    ".",
    "-",
    " ",
    "0",
    "9",
    "a",
    "::",
    "127.0.0.1",
    "localhost",
    "\x00",
    "é",
    "\ud800",
]
OBJECTS: list[Any] = [
    None,
    True,
    0,
    1,
    -1,
    2**70,
    1.5,
    float("nan"),
    b"1",
    [],
    ["a:1", "b:2"],
    [1],
    {},
    object,
    ("a:1",),
]

OTHER_VARIABLES = [
    *("DTENSOR_JOBS", "DTENSOR_CLIENT_ID", "DTENSOR_NUM_CLIENTS", "DTENSOR_JOB_NAME"),
    *("KERAS_DISTRIBUTION_JOB_ADDRESSES", "KERAS_DISTRIBUTION_NUM_PROCESSES", "KERAS_DISTRIBUTION_PROCESS_ID"),
    *("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "BRINGUP_TOKNE", "BRINGUP_"),
]
ARGUMENTS = [
    "jobs",
    "client_id",
    "num_clients",
    "job_name",
    "local_device_ids",
    "resolver",
    "on_failure",
    "device_type",
]
OPTIONS = [field.name for field in fields(Options)]

OPENS_FILES = {"BRINGUP_TOKEN_FD", "token_fd"}
"""A descriptor is read and closed: not one of the tests'."""


def text(chance: random.Random) -> str:
    """Return a value as text: often one that is right somewhere."""
    if chance.random() < 0.7:
        return chance.choice(VALUES)
    return "".join(chance.choices(PIECES, k=chance.randrange(12)))


def value(chance: random.Random) -> Any:
    return text(chance)[:200] if chance.random() < 0.6 else chance.choice(OBJECTS)


def some(names: list[str], chance: random.Random) -> list[str]:
    """Return a few names, each once."""
    return chance.sample(names, chance.choice([0, 0, 1, 1, 2, 3]))


def one_plan(folder: Path, variables: list[str], chance: random.Random) -> str:
    environ = {name: text(chance) for name in some(variables, chance)}
    if chance.random() < 0.1:
        environ["BRINGUP_TOKEN"] = chance.choice([SECRET, SECRET[1:], f"{SECRET} ", f"x{SECRET}"])
    environ["XDG_RUNTIME_DIR"] = str(folder)
    if chance.random() < 0.5:
        environ |= {"BRINGUP_JOBS": "127.0.0.1:9000,127.0.0.1:9001", "BRINGUP_CLIENT_ID": "1"}
    request = partial(Request, **{name: value(chance) for name in some(ARGUMENTS, chance)})
    overrides = {name: value(chance) for name in some(OPTIONS, chance) if name not in OPENS_FILES}
    try:
        plan = make_plan(request(overrides=overrides), environ)
    except ConfigurationError as error:
        said = str(error)
        assert said
        assert SECRET[1:] not in said
        assert len(said) < 3_000, said[:200]
        return "refused"
    assert isinstance(plan, Plan)
    assert 0 <= plan.job.client_id < plan.job.num_clients
    assert SECRET[1:] not in repr(plan)
    return "a plan"


def fuzz_settings(folder: Path, count: int, seed: int) -> Counter[str]:
    """Check `count` configurations; tokens of the user are made in `folder`."""
    chance = random.Random(seed)
    variables = sorted({*VARIABLES, *OTHER_VARIABLES} - OPENS_FILES)
    return Counter(one_plan(folder, variables, chance) for _ in range(count))
