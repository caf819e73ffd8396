"""`bringup resolve`: the job and the options that this environment describes, and their sources."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import IO

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..errors import ConfigurationError
from ..runtime.configuration.environment import unknown_variables
from ..runtime.configuration.handed_tokens import HANDED
from ..runtime.configuration.job import JobSpec
from ..runtime.configuration.options import Options, option_settings
from ..runtime.configuration.resolve import resolve_job
from ..runtime.configuration.security import security_of
from ..runtime.configuration.settings import Origin

_ROWS = 32


class _Refused(click.ClickException):
    """The job cannot be resolved, which has the exit status of a wrong command line."""

    exit_code = 2

    def show(self, file: IO[str] | None = None) -> None:
        click.echo(f"bringup: {self.format_message()}", err=True)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--options",
    "with_options",
    is_flag=True,
    help="With --json: also the options and the secret's fingerprint, with their origins.",
)
@click.option("--jobs", metavar="HOST:PORT,...", help="As the argument: one address per client, or the coordinator's.")
@click.option("--client-id", type=int, metavar="N", help="As the argument: this client.")
@click.option("--num-clients", type=int, metavar="N", help="As the argument: how many clients.")
@click.option("--job-name", metavar="NAME", help="As the argument: what to call the job.")
@click.option("--resolver", metavar="NAME", help="As the argument: ask this cluster resolver; none: local mode.")
def resolve(
    as_json: bool,
    with_options: bool,
    jobs: str | None,
    client_id: int | None,
    num_clients: int | None,
    job_name: str | None,
    resolver: str | None,
) -> None:
    """Show which job and options this environment describes, where they were found, and what was passed over."""
    try:
        resolved = Options.resolve(None, {}, os.environ)
        spec = resolve_job(
            jobs=jobs,
            client_id=client_id,
            num_clients=num_clients,
            job_name=job_name,
            resolver=resolver,
            environ=os.environ,
            timeout=resolved.initialization_timeout,
        )
    except ConfigurationError as error:
        raise _Refused(str(error)) from None
    if as_json:
        click.echo(json.dumps(spec.to_json() | (_beside_the_job(spec, resolved) if with_options else {}), indent=2))
    else:
        _print(spec, _security(spec, resolved), _options(resolved), Console(highlight=False))
    for text in unknown_variables(os.environ).values():
        click.echo(f"bringup: {text}", err=True)


def _beside_the_job(spec: JobSpec, resolved: Options) -> dict[str, object]:
    value, origin = _security(spec, resolved)
    return {"options": _options(resolved), "security": {"value": value, "from": origin}}


def _security(spec: JobSpec, resolved: Options) -> tuple[str, str]:
    """How the clients of the job know each other, and where that comes from; or why they cannot."""
    try:
        found = security_of(spec, resolved.bind_address, option_settings(None, {}, os.environ), os.environ, HANDED)
    except ConfigurationError as error:
        return "refused", str(error)
    return found.shown, found.source


def _print(
    spec: JobSpec, security: tuple[str, str], options: Mapping[str, Mapping[str, object]], console: Console
) -> None:
    # Text, never markup: an IPv6 address in brackets would be taken for a style.
    console.print(_facts(spec, security))
    if not spec.is_local:
        console.print(_clients(spec))
    considered = Table("looked at", "verdict", title="Sources, in order", title_justify="left")
    for one in spec.considered:
        considered.add_row(Text(one.source), Text(one.verdict))
    console.print(considered)
    table = Table("option", "value", "from", title="Options", title_justify="left")
    for name, option in options.items():
        value = "" if option["value"] is None else str(option["value"])
        table.add_row(name, Text(value, overflow="fold"), Text(str(option["from"])))
    console.print(table)


def _options(resolved: Options) -> dict[str, dict[str, object]]:
    """The value and the source of every option."""
    return {
        name: {
            "value": setting.shown if setting.is_hidden else getattr(resolved, name),
            "from": "default" if setting.origin is Origin.DEFAULT else setting.where,
        }
        for name, setting in option_settings(None, {}, os.environ).items()
    }


def _facts(spec: JobSpec, security: tuple[str, str]) -> Table:
    table = Table("setting", "value", "from", title=Text(f"Job from {spec.source}"), title_justify="left")
    facts = {
        "job_name": spec.job_name,
        "num_clients": str(spec.num_clients),
        "client_id": str(spec.client_id),
        "coordinator_address": spec.coordinator_address or "none: local mode, no network",
    }
    for name, value in facts.items():
        table.add_row(name, Text(value, overflow="fold"), Text(spec.provenance[name]))
    table.add_row("security", Text(security[0], overflow="fold"), Text(security[1], overflow="fold"))
    return table


def _clients(spec: JobSpec) -> Table:
    table = Table("client", "address", "", title="Clients", title_justify="left")
    shown = sorted({*range(min(_ROWS, spec.num_clients)), spec.client_id})
    for client in shown:
        table.add_row(str(client), Text(_address(spec, client), overflow="fold"), _marks(spec, client))
    if len(shown) < spec.num_clients:
        table.add_row("...", f"and {spec.num_clients - len(shown)} more")
    return table


def _address(spec: JobSpec, client: int) -> str:
    if spec.jobs is not None:
        return spec.jobs[client]
    return spec.coordinator_address or "" if client == 0 else "known once it has registered"


def _marks(spec: JobSpec, client: int) -> str:
    marks = ("coordinator" if client == 0 else "", "this client" if client == spec.client_id else "")
    return ", ".join(mark for mark in marks if mark)
