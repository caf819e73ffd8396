"""`bringup bench failure`: the time from a fault until every survivor is told of it, and whether it was told right."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import click

from ....transport.tcp.interfaces import free_ports
from .. import libraries as others
from ..libraries import BRINGUP, PATIENCE
from ..runner import Case, Entrant, clients_option, count_option, json_option, run_scenario, seconds_option
from .alarms import WATCHER, AlarmScenario
from .faults import CATALOGUE, FEWEST_CLIENTS, VICTIMS, Fault, Kind, Limits, draw_trial
from .report import FaultRow, faults_table, libraries_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.table import Table

    from ..runner import Hosts
    from ..trials import FaultTrial

# A run of another library takes up to two minutes, and its time depends on its own time-outs alone.
_LIBRARY_RUNS_MAX = 3
_OTHERS = {f"{others.__name__}:{name}": getattr(others, name) for name in ("JAX_IDLE", "TORCH_BARRIER")}
_CLIENT = Entrant(BRINGUP, f"{__package__}.client:FAULT_CLIENT")


@dataclass(frozen=True, slots=True)
class Settings:
    """The command's options; durations in seconds."""

    clients: tuple[int, ...]
    runs: int
    timeout: float
    seed: int
    heartbeat_interval: float
    heartbeat_timeout: float
    deadline: float

    @property
    def limits(self) -> Limits:
        """The time-outs of jobs with a stopped or missing client."""
        return Limits(self.heartbeat_interval, self.heartbeat_timeout, self.deadline)


class FaultScenario:
    """Faults in jobs of bringup, then a killed client and a killed coordinator of other libraries; a `Scenario`."""

    def __init__(self, settings: Settings, faults: Sequence[Fault]) -> None:
        self._settings = settings
        self._rng = random.Random(settings.seed)  # noqa: S311 - to be repeated
        self._rows = {
            (fault, clients): FaultRow(
                BRINGUP.name, fault, clients, settings.limits.bound(fault), settings.limits.floor(fault)
            )
            for fault in faults
            for clients in settings.clients
        }
        self._others: list[FaultRow] = []
        self.title = f"seed {settings.seed}, {settings.runs} runs of each row"
        self.facts = asdict(settings)

    def cases(self, entrants: Sequence[Entrant], hosts: Hosts) -> list[Case]:
        cases = []
        for clients in self._settings.clients:
            turn = [row for (_, number), row in self._rows.items() if number == clients]
            cases += [_case(row, _CLIENT.program, self._draw, hosts) for row in turn] * self._settings.runs
        for entrant in entrants:
            if entrant is not _CLIENT:
                cases += self._cases_of_library(entrant, hosts)
        return cases

    def _cases_of_library(self, entrant: Entrant, hosts: Hosts) -> list[Case]:
        phase = _OTHERS[entrant.program].phase
        clients = min(self._settings.clients)
        cases = []
        for victim in VICTIMS:
            row = FaultRow(entrant.library.name, Fault("kill", victim, phase), clients, None, 0.0)
            self._others.append(row)
            case = _case(row, entrant.program, self._draw_of_library, hosts)
            cases += [case] * min(self._settings.runs, _LIBRARY_RUNS_MAX)
        return cases

    def _draw(self, row: FaultRow) -> FaultTrial:
        ports = tuple(free_ports(row.clients))
        return draw_trial(row.fault, ports, self._settings.limits, self._settings.timeout, self._rng)

    def _draw_of_library(self, row: FaultRow) -> FaultTrial:
        return replace(self._draw(row), patience=PATIENCE, may_end=True)

    def as_object(self) -> dict[str, Any]:
        return {
            "rows": [row.as_object() for row in self._rows.values()],
            "libraries": [row.as_object() for row in self._others],
        }

    def tables(self) -> list[Table]:
        tables = [faults_table(list(self._rows.values()))]
        return [*tables, libraries_table(self._others)] if self._others else tables

    @property
    def is_sound(self) -> bool:
        """Whether every survivor was told of the right client and cause."""
        return not any(row.wrong or row.failures for row in self._rows.values())


def _case(row: FaultRow, program: str, draw: Callable[[FaultRow], FaultTrial], hosts: Hosts) -> Case:
    def sample() -> list[str]:
        trial = draw(row)
        return row.add(trial, hosts.run(program, trial))

    return Case(row.title, sample)


@click.command("failure")
@clients_option("--clients", "4,8,16,32", FEWEST_CLIENTS, "Numbers of clients.")
@count_option("--runs", 20, "Runs of each row.")
@seconds_option("--timeout", 30.0, "Seconds beyond its bound after which a survivor hangs.")
@click.option("--seed", type=int, help="Seed of victims, orders and pauses; drawn and printed where not given.")
@seconds_option("--heartbeat-timeout", 2.0, "Of the jobs in which a client is stopped.")
@seconds_option("--heartbeat-interval", 0.2, "Of the jobs in which a client is stopped.")
@seconds_option("--deadline", 2.0, "The initialization_timeout of jobs that wait in vain.")
@click.option("--only", multiple=True, type=click.Choice(get_args(Kind)), help="Leave other faults out.")
@click.option(
    "--libraries",
    is_flag=True,
    help=f"Kill clients of jax and torch as well, in {_LIBRARY_RUNS_MAX} runs at most.",
)
@seconds_option("--alarms", None, "Instead: watch a healthy job for so many seconds beside a load on every core.")
@count_option("--alarm-clients", 16, "The clients of that job.", 2)
@json_option
def failure_command(
    only: tuple[str, ...],
    libraries: bool,
    alarms: float | None,
    alarm_clients: int,
    as_json: bool,
    seed: int | None,
    **options: Any,
) -> None:
    """Time how long it takes until every survivor of a fault is told, in jobs on this machine's loopback.

    The clients use the SIM backend. The time counts from right before the fault, and ends when the pending call of the
    last survivor has raised. Whatever the figures are, the exit status is 0, save where a survivor hung or was told of
    the wrong client or cause, or where a healthy job failed: then it is 1.
    """
    if options["heartbeat_timeout"] <= options["heartbeat_interval"]:
        raise click.BadParameter("it must be greater than --heartbeat-interval", param_hint="--heartbeat-timeout")
    if alarms is not None:
        run_scenario(AlarmScenario(alarm_clients, alarms), [WATCHER], as_json=as_json)
        return
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    faults = [fault for fault in CATALOGUE if fault.kind in (only or get_args(Kind))]
    entrants = [Entrant(program.library, name) for name, program in _OTHERS.items() if libraries]
    run_scenario(FaultScenario(Settings(seed=seed, **options), faults), [_CLIENT, *entrants], as_json=as_json)
