"""The runner of all bench commands: samples the cases of a scenario in turn, and prints its tables or its JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .host import Host
from .libraries import measured_environment
from .report import machine_facts, versions_of

if TYPE_CHECKING:
    from rich.table import Table

    from .libraries import Library
    from .trials import Outcome, Trial


@dataclass(frozen=True, slots=True)
class Entrant:
    """A library in a scenario, and `module:attribute` of its clients' `Program` there."""

    library: Library
    program: str


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that is sampled many times, in turn with others.

    Attributes:
        title: Stands beside the progress bar, and before each problem.
        sample: Takes one sample; returns a text for each problem with it.
    """

    title: str
    sample: Callable[[], Iterable[str]]


class Scenario(Protocol):
    """The measurements of one bench command."""

    @property
    def title(self) -> str:
        """The first line of the output."""
        ...

    @property
    def facts(self) -> Mapping[str, Any]:
        """The settings, for JSON."""
        ...

    def cases(self, entrants: Sequence[Entrant], hosts: Hosts) -> Sequence[Case]:
        """All samples to take, in their order: a case appears once for each of its samples.

        Libraries take turns, run by run, so that they share whatever else the machine does meanwhile.

        Args:
            entrants: Those whose library is installed.
            hosts: Carry trials out.
        """
        ...

    def as_object(self) -> Mapping[str, Any]:
        """The results, for JSON."""
        ...

    def tables(self) -> Sequence[Table]:
        """The results, for a person."""
        ...

    @property
    def is_sound(self) -> bool:
        """Whether the command may exit with status 0."""
        ...


class Hosts:
    """A host for each program, started at its first trial; all end with the stack."""

    def __init__(self, stack: ExitStack, spawn: str) -> None:
        self._stack, self._spawn = stack, spawn
        self._environment = measured_environment(os.environ)
        self._hosts: dict[str, Host] = {}

    def run(self, program: str, trial: Trial) -> Outcome:
        """Have a trial of a program's clients carried out."""
        if program not in self._hosts:
            self._hosts[program] = self._stack.enter_context(Host(program, self._spawn, self._environment))
        return self._hosts[program].run(trial)


def run_scenario(scenario: Scenario, entrants: Sequence[Entrant] = (), *, as_json: bool, spawn: str = "fork") -> None:
    """Sample all cases of a scenario, print the results, and end with status 1 unless it is sound.

    Args:
        scenario: The measurements.
        entrants: The libraries that were asked for, installed or not.
        as_json: Whether to print one JSON object, and everything else on standard error.
        spawn: `fork` or `exec`: how the clients are started.
    """
    absent = {one.library.name: why for one in entrants if (why := one.library.available())}
    present = [one for one in entrants if one.library.name not in absent]
    facts = {
        **scenario.facts,
        "machine": machine_facts(),
        "versions": versions_of(one.library for one in present),
        "absent": absent,
    }
    _introduce(scenario.title, facts, err=as_json)
    _sample(scenario, present, spawn)
    if as_json:
        click.echo(json.dumps({**facts, **scenario.as_object()}))
    else:
        Console(highlight=False).print(*scenario.tables())
    if not scenario.is_sound:
        sys.exit(1)


def _introduce(title: str, facts: Mapping[str, Any], *, err: bool) -> None:
    """Print what is about to run, on which machine, and the libraries that are left out."""
    machine = facts["machine"]
    echo = partial(click.echo, err=err)
    echo(title)
    echo(f"{machine['cpus']} x {machine['cpu']}, {machine['kernel']}, load {machine['load_average'][0]:.2f}")
    echo(", ".join(f"{name} {version}" for name, version in facts["versions"].items()))
    for library, why in facts["absent"].items():
        echo(f"not measured: {library}: {why}")


def _sample(scenario: Scenario, entrants: Sequence[Entrant], spawn: str) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with ExitStack() as stack, bar:
        cases = scenario.cases(entrants, Hosts(stack, spawn))
        task = bar.add_task("", total=len(cases))
        for case in cases:
            bar.update(task, description=case.title)
            for problem in case.sample():
                console.print(f"{case.title}: {problem}", markup=False, highlight=False, soft_wrap=True)
            bar.advance(task)


def run_process(command: Sequence[str], timeout: float, environment: Mapping[str, str] | None = None) -> str:
    """Run a process to its end; returns its standard output.

    Raises:
        ProcessFailed: it failed or took more than `timeout` seconds.
    """
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=timeout,
        )
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ProcessFailed(f"failed: {last}") from None
    except subprocess.TimeoutExpired:
        raise ProcessFailed(f"took more than {timeout:g} s") from None
    return done.stdout


class ProcessFailed(Exception):
    """A process did not get to its end; the text is a predicate of it."""


# Options that several commands have.

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with the raw samples.")


def count_option(name: str, default: int, text: str, fewest: int = 1) -> Callable[[Any], Any]:
    """An option that is a number of `fewest` or more."""
    return click.option(name, default=default, type=click.IntRange(min=fewest), show_default=True, help=text)


def seconds_option(name: str, default: float | None, text: str) -> Callable[[Any], Any]:
    """An option that is seconds, more than 0."""
    kind = click.FloatRange(min=0, min_open=True)
    return click.option(name, default=default, type=kind, show_default=default is not None, help=text)


def clients_option(name: str, default: str, fewest: int, text: str) -> Callable[[Any], Any]:
    """An option that lists numbers of clients, each `fewest` or more."""

    def parse(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[int, ...]:
        parts = value.split(",")
        if not all(part.strip().isdecimal() and int(part) >= fewest for part in parts):
            least = f" of {fewest} or more" if fewest > 1 else ""
            raise click.BadParameter(f"{value!r} is not a list of numbers{least} of clients; write for example 4,16,64")
        return tuple(int(part) for part in parts)

    return click.option(name, default=default, callback=parse, show_default=True, help=text)


insecure_option = click.option(
    "--insecure", is_flag=True, help="Also measure bringup over plain TCP, and show what TLS costs: the ratio of both."
)


def only_option(names: Iterable[str]) -> Callable[[Any], Any]:
    """The option `--only`, which leaves libraries out."""
    choice = click.Choice(list(names), case_sensitive=False)
    return click.option("--only", multiple=True, type=choice, help="Leave others out.")
