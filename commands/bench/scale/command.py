"""`bringup bench scale`: the cost of a job to come up, to be idle and to lose a client, by its number of clients."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ....errors import ConfigurationError
from ....runtime.configuration.options import Options
from ....transport.tcp.interfaces import free_ports
from ..libraries import BRINGUP
from ..load import busy_processes
from ..runner import Case, Entrant, clients_option, count_option, json_option, run_scenario, seconds_option
from ..trials import ScaleTrial
from ..usage import PROC
from .limits import find_limits, shortage
from .report import Row, growth_of, growth_table, scale_tables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from ..runner import Hosts

_CLIENT = Entrant(BRINGUP, f"{__package__}.client:SCALE_CLIENT")


@dataclass(frozen=True, slots=True)
class Settings:
    """The command's options; durations in seconds."""

    clients: tuple[int, ...]
    runs: int
    idle: float
    soak: float | None
    load: int
    backend: str
    timeout: float
    seed: int
    options: Mapping[str, float]


class ScaleScenario:
    """Jobs of each number of clients, the smallest first; a `Scenario`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._rng = random.Random(settings.seed)  # noqa: S311 - to be repeated
        self._rows = [Row(clients) for clients in settings.clients]
        options = "".join(f", {name}={value:g}" for name, value in settings.options.items())
        self.title = (
            f"seed {settings.seed}, {settings.backend} backend, idle for {settings.soak or settings.idle:g} s, "
            f"beside {settings.load} busy processes{options}"
        )
        self.facts = asdict(settings)

    def cases(self, entrants: Sequence[Entrant], hosts: Hosts) -> list[Case]:
        runs = self._settings.runs
        return [Case(row.title, partial(self._sample, hosts, row)) for row in self._rows for _ in range(runs)]

    def _sample(self, hosts: Hosts, row: Row) -> list[str]:
        trial = draw_trial(self._settings, row.clients, self._rng)
        with busy_processes(self._settings.load):
            return row.add(trial, hosts.run(_CLIENT.program, trial))

    def as_object(self) -> dict[str, Any]:
        return {"rows": [row.as_object() for row in self._rows], "growth": growth_of(self._rows)}

    def tables(self) -> list[Table]:
        tables = scale_tables(self._rows)
        return [*tables, growth_table(self._rows)] if len(self._rows) > 1 else tables

    @property
    def is_sound(self) -> bool:
        """Whether every job came up, and every survivor was told of the right client and cause."""
        return not any(row.wrong or row.failures for row in self._rows)


def draw_trial(settings: Settings, clients: int, rng: random.Random) -> ScaleTrial:
    """Draw the order in which one job's processes start, and the client that is killed."""
    order = list(range(clients))
    rng.shuffle(order)
    return ScaleTrial(
        ports=tuple(free_ports(clients)),
        order=order,
        timeout=settings.timeout,
        backend=settings.backend,
        options=settings.options,
        seconds=settings.soak or settings.idle,
        victim=rng.randrange(1, clients),
    )


@click.command("scale")
@clients_option("--clients", "32,64,128,256,512", 3, "Numbers of clients.")
@count_option("--runs", 1, "Jobs of each number; the table has medians.")
@seconds_option("--idle", 5.0, "Seconds for which the use of an idle job is measured.")
@seconds_option("--soak", None, "Instead: idle seconds in which a false alarm may come.")
@count_option("--load", 0, "Busy processes beside the clients.", 0)
@click.option(
    "--backend", default="CPU", type=click.Choice(["CPU", "SIM"]), show_default=True, help="The clients' devices."
)
@click.option("--group-size", type=click.IntRange(min=0), help="Of initialize(): clients of a group; 0 for no groups.")
@seconds_option("--heartbeat-interval", None, "Of initialize().")
@seconds_option("--heartbeat-timeout", None, "Of initialize().")
@seconds_option("--timeout", 330.0, "Seconds for each step, after which a job has failed and its clients are killed.")
@click.option("--seed", type=int, help="Seed of start orders and victims; drawn and printed where not given.")
@json_option
def scale_command(
    as_json: bool,
    seed: int | None,
    group_size: int | None,
    heartbeat_interval: float | None,
    heartbeat_timeout: float | None,
    **options: Any,
) -> None:
    """Measure the cost of jobs by their number of clients, on this machine's loopback.

    The clients are forked from a process that has imported everything, and released together. Measured are the
    processor seconds and the memory of client 0 and of the others until the last is up, then their use of a core when
    nothing happens, then the time from one client's SIGKILL until all survivors are told. The exit status is 1 where a
    job did not come up, or a client was told of anything else.
    """
    given = {
        "group_size": group_size,
        "heartbeat_interval": heartbeat_interval,
        "heartbeat_timeout": heartbeat_timeout,
    }
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    chosen = {name: value for name, value in given.items() if value is not None}
    Options.resolve(None, chosen, {})  # once here, and not by each of a thousand clients
    settings = Settings(seed=seed, options=chosen, **options)
    _check_machine(max(settings.clients))
    run_scenario(ScaleScenario(settings), [_CLIENT], as_json=as_json)


def _check_machine(clients: int) -> None:
    if not PROC.is_dir():
        raise ConfigurationError(f"`bringup bench scale` reads {PROC.parent}, which this system does not have.")
    if (text := shortage(clients, list(find_limits()))) is not None:
        raise ConfigurationError(text)
