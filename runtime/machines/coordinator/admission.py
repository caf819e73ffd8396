"""The conditions for joining a job; a registration that does not fit is refused with both sides' values."""

from __future__ import annotations

from msgspec.structs import replace

from ....transport.addresses import Address
from ....transport.wire.messages import PROTOCOL_VERSION, Refused, Register
from ..failure_errors import CERTIFICATE
from ..job_lists import refusal_of_list
from .config import CoordinatorConfig
from .members import Members

_SHOWN_CHARS_MAX = 1024
"""Of the value of a stranger: it goes into a log, in one line."""


def refusal_of(register: Register, config: CoordinatorConfig, members: Members, *, is_forming: bool) -> Refused | None:
    """Return why `register` is refused, or `None` where it fits.

    Args:
        register: the client that wants to join.
        config: of the job.
        members: those that have registered.
        is_forming: whether the job still waits for clients.
    """
    refusal = _misfit(register, config, members, is_forming)
    return None if refusal is None else replace(refusal, yours=refusal.yours[:_SHOWN_CHARS_MAX])


def refusal_of_impostor(register: Register, certified_id: int | None) -> Refused:
    """Return the refusal of a client that claims another id than its certificate has."""
    advice = "A client may register as itself only: check client_id, and whose files tls_cert and tls_key are."
    return Refused(
        CERTIFICATE, f"that of client {certified_id}", f"no certificate of client {register.client_id}", advice
    )


def _misfit(register: Register, config: CoordinatorConfig, members: Members, is_forming: bool) -> Refused | None:
    for field, theirs, ours, advice in (
        ("protocol_version", register.protocol_version, PROTOCOL_VERSION, "Install one version of bringup on all."),
        ("job_name", register.job_name, config.job_name, "Another job may be using this address."),
        ("num_clients", register.num_clients, config.num_clients, "All clients must be given the same jobs."),
    ):
        if theirs != ours:
            return Refused(field, repr(theirs), repr(ours), advice)
    if not 0 <= register.client_id < config.num_clients:
        return Refused("client_id", str(register.client_id), f"0 to {config.num_clients - 1}", "")
    if (refusal := refusal_of_list(register.jobs_digest, config.jobs_digest, config.addresses)) is not None:
        return refusal
    if config.num_clients > 1 and not _is_address(register.link_address):
        return Refused(
            "link_address", repr(register.link_address), "a host and a port", "It is no peer of this version."
        )
    if register.heartbeat_interval >= config.heartbeat_timeout:
        ours = f"heartbeat_timeout={config.heartbeat_timeout:g}"
        advice = "The coordinator would take this client for dead: make the interval shorter than the timeout."
        return Refused("heartbeat_interval", f"{register.heartbeat_interval:g}", ours, advice)
    return _conflict(register, members, is_forming)


def _conflict(register: Register, members: Members, is_forming: bool) -> Refused | None:
    """Return the refusal of a client that conflicts with a member."""
    if (incumbent := members.get(register.client_id)) is not None:
        own, other = _process(register), _process(incumbent.register)
        if is_forming:
            advice = "Two processes were given one client_id: check the launcher."
            return Refused("client_id", f"{register.client_id} ({own})", f"taken by {other}", advice)
        advice = "A client that restarts cannot rejoin a job: restart the job. Or two processes have one client_id."
        return Refused("incarnation", f"{register.incarnation:016x} ({own})", f"of {other}", advice)
    # One that has no type yet tells it in the merge.
    first = members.first_of_a_type
    if first is not None and register.device_type and first.device_type != register.device_type:
        ours = f"{first.device_type} (client {first.client_id})"
        return Refused("device_type", register.device_type, ours, "All clients bring up one type of device.")
    return None


def _is_address(text: str) -> bool:
    try:
        Address.parse(text)
    except ValueError:
        return False
    return True


def _process(register: Register) -> str:
    return f"process {register.pid} on host {register.hostname}"
