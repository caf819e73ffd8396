"""The plan of a client: the arguments of `initialize()` and the environment, resolved and checked."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...devices.base import BackendConfig
from ...errors import ConfigurationError
from ...processes.report import Launch
from ...transport.addresses import Address
from ...transport.security.key_files import KeyFiles
from ...transport.security.token import Token
from .environment import unknown_variables
from .handed_tokens import HANDED, HandedTokens
from .job import JobSpec
from .job_facts import is_bns
from .options import Options, option_settings
from .request import OnFailure, Request
from .resolve import resolve_request
from .security import security_of
from .validation import whole_number

_log = logging.getLogger("bringup")

_SECRETS = frozenset({"BRINGUP_TOKEN"})
"""Variables that no backend gets: these may show their configuration, and hand it to other processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that a client is made from.

    Attributes:
        device_type: as asked for; `None` for the first present of TPU, GPU, CPU.
        job: the clients of the job.
        options: how to come up.
        backend: the settings of the device backend.
        enable_coordination_service: whether barriers and the key-value store are on.
        on_failure: `raise`, `exit`, or a function of the failure.
        launch: where this process reports to its launchers.
        security: the secret by which the clients know each other; `None` for plain TCP, and for a job of one client.
        security_source: the place that it comes from.
    """

    device_type: str | None
    job: JobSpec
    options: Options
    backend: BackendConfig
    enable_coordination_service: bool
    on_failure: OnFailure
    launch: Launch
    security: Token | KeyFiles | None
    security_source: str


def make_plan(
    request: Request, environ: Mapping[str, str], job: JobSpec | None = None, handed: HandedTokens = HANDED
) -> Plan:
    """Resolve and check the arguments of `initialize()`.

    Args:
        request: the arguments.
        environ: the environment variables.
        job: where it is resolved already.
        handed: the tokens that this process was handed.

    Raises:
        ConfigurationError: one of them is wrong, or they do not fit together.
    """
    settings = option_settings(request.options, request.overrides, environ)
    resolved = Options.of_settings(settings)
    for text in unknown_variables(environ).values():
        _log.warning("%s", text)
    if job is None:
        job = resolve_request(request, environ)
    _check_reachable(job, resolved)
    security = security_of(job, resolved.bind_address, settings, environ, handed)
    if request.on_failure not in ("raise", "exit") and not callable(request.on_failure):
        raise ConfigurationError(f"on_failure={request.on_failure!r} is neither 'raise' nor 'exit' nor callable")
    if request.device_type is not None and not isinstance(request.device_type, str):
        raise ConfigurationError(f"device_type={request.device_type!r} is not a name such as 'CPU'")
    divides = job.num_local_clients is not None and not resolved.share_devices
    backend = BackendConfig(
        client_id=job.client_id,
        num_clients=job.num_clients,
        local_client_id=job.local_client_id if divides else None,
        num_local_clients=job.num_local_clients if divides else None,
        local_device_ids=_local_device_ids(request.local_device_ids),
        num_logical_cpu_devices=request.num_logical_cpu_devices,
        enable_megacore=request.enable_megacore,
        environment={name: value for name, value in environ.items() if name not in _SECRETS},
    )
    return Plan(
        device_type=request.device_type,
        job=job,
        options=resolved,
        backend=backend,
        enable_coordination_service=request.enable_coordination_service,
        on_failure=request.on_failure,
        launch=Launch.of_environment(environ),
        security=security.secret,
        security_source=security.source,
    )


def _check_reachable(job: JobSpec, options: Options) -> None:
    for client_id, address in enumerate(job.jobs or ()):
        if is_bns(address):
            raise ConfigurationError(
                f"jobs (from {job.provenance.get('jobs', job.source)}) names client {client_id} {address!r}, a BNS "
                "address, which only its own name service resolves: give host:port addresses"
            )
    if job.is_loopback or job.is_alone:
        return
    remedy = "give the address at which the other hosts reach it"
    for client_id, address in enumerate(job.jobs or ()):
        if Address.parse(address).is_loopback:
            raise ConfigurationError(
                f"jobs (from {job.provenance.get('jobs', job.source)}) names client {client_id} {address!r}, which "
                f"means this machine on every host, though others are elsewhere: {remedy}"
            )
    advertised = options.advertise_address
    if advertised is not None and Address(advertised, 1).is_loopback:
        raise ConfigurationError(
            f"advertise_address={advertised!r} (BRINGUP_ADVERTISE_ADDRESS) means this machine on every host, but the "
            f"job leaves this machine (coordinator {job.coordinator_address}, from {job.source}): {remedy}"
        )


def _local_device_ids(given: int | Sequence[int] | None) -> tuple[int, ...] | None:
    if given is None:
        return None
    found = list(map(whole_number, given if isinstance(given, Iterable) else [given]))
    ids = [number for number in found if number is not None and number >= 0]
    if not ids or len(set(ids)) < len(found):
        raise ConfigurationError(
            f"local_device_ids={given!r} is not a list of different local device indices, 0 or more"
        )
    return tuple(ids)
