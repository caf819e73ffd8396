"""Exceptions for the users of a failed job, from the messages and facts of its failure."""

from __future__ import annotations

import copy
from typing import TypeVar

from ...errors import (
    AuthenticationError,
    BarrierTimeoutError,
    BringupError,
    CollectiveMismatchError,
    ConfigurationError,
    CoordinatorLostError,
    DeviceFailedError,
    KeyExistsError,
    NotInitializedError,
    PeerFailedError,
    RegistrationRefusedError,
    RendezvousTimeoutError,
    TopologyError,
)
from ...transport.wire.messages import MemberInfo, Refused, Verdict
from .id_ranges import format_ids, name_ids, unpack_ids
from .phases import Phase
from .session.limits import SERVICES_KEPT_MAX

REFUSAL_ERRORS: dict[str, type[BringupError]] = {
    kind.__name__: kind
    for kind in (BarrierTimeoutError, CollectiveMismatchError, ConfigurationError, KeyExistsError, PeerFailedError)
}
"""Errors that the coordination services refuse a call with. A name that is not here is not looked up anywhere else."""

JOB_WIDE_ERRORS: dict[str, type[BringupError]] = {"TopologyError": TopologyError}
"""Errors that are nobody's fault in particular: every client raises the same."""

TOLD_AS_THEY_ARE = (*JOB_WIDE_ERRORS, DeviceFailedError.__name__)
"""Errors that every client raises where one says goodbye with them; others are the cause of a `PeerFailedError`."""

CERTIFICATE = "certificate"
"""The field of a refusal where a client claims to be another one."""

RENDEZVOUS_TIMEOUT = RendezvousTimeoutError.__name__

E = TypeVar("E", bound=BaseException)

_NAMED_MAX = 8
"""Clients that a text names with their addresses."""

_CAUSE_CHARACTERS_MAX = 4096
"""Of a cause, which goes to every client of the job: an exception may carry a text of any length."""

_ADVICE_ABSENT = (
    "Check that the missing clients were started, with these jobs and ids, and can reach client 0. One with another "
    "secret never gets that far: its own log has an AuthenticationError."
)
_ADVICE_SLOW = "Look at the logs of those clients, or give them a longer initialization_timeout."


def of_verdict(verdict: Verdict) -> BringupError:
    """Return the exception for a verdict."""
    if verdict.error in JOB_WIDE_ERRORS:
        return JOB_WIDE_ERRORS[verdict.error](verdict.cause)
    if verdict.error == CoordinatorLostError.__name__:
        return coordinator_lost(verdict.address, verdict.hostname, verdict.phase, verdict.cause)
    if verdict.error == DeviceFailedError.__name__:
        return devices_failed(verdict.client_id, verdict.address, verdict.hostname, verdict.phase, verdict.cause)
    text = f"{_who(verdict)} failed in phase {verdict.phase}: {verdict.cause.rstrip('.')}"
    if verdict.also:
        also = list(unpack_ids(verdict.also))
        text += f". Clients that failed with it: {format_ids(also, max(verdict.num_also - len(also), 0))}"
    return PeerFailedError(
        f"{text}. Look at the log of that client; restart the job once it is mended.",
        client_id=verdict.client_id,
        address=verdict.address,
        host=verdict.hostname,
        phase=verdict.phase,
        cause=verdict.cause,
    )


def own_failure(error: BringupError, client_id: int, address: str, host: str, phase: str) -> PeerFailedError:
    """Return `error` as a `PeerFailedError`; one that names no client is this client's own."""
    if isinstance(error, PeerFailedError):
        return error
    text = str(error)
    failure = PeerFailedError(text, client_id=client_id, address=address, host=host, phase=phase, cause=text)
    failure.__cause__ = error
    return failure


def of_refusal(refusal: Refused, client_id: int, coordinator: str) -> BringupError:
    """Return the exception for a refused registration."""
    if refusal.field == CERTIFICATE:
        return AuthenticationError(
            f"the coordinator on {coordinator} refused client {client_id}: the certificate here is {refusal.yours}. "
            f"{refusal.detail}"
        )
    return RegistrationRefusedError(
        f"the coordinator on {coordinator} refused client {client_id}: {refusal.field} is {refusal.yours} here and "
        f"{refusal.ours} there. {refusal.detail}",
        field=refusal.field,
        ours=refusal.yours,
        theirs=refusal.ours,
    )


def coordinator_lost(address: str, host: str, phase: str, cause: str) -> CoordinatorLostError:
    """Return the exception for a lost coordinator."""
    return CoordinatorLostError(
        f"client 0 ({host or address}), which hosts the coordinator, was lost in phase {phase}: {cause}. "
        "Look at the log of client 0; restart the job once it is mended.",
        client_id=0,
        address=address,
        host=host,
        phase=phase,
        cause=cause,
    )


def devices_failed(client_id: int, address: str, host: str, phase: str, cause: str) -> DeviceFailedError:
    """Return the exception for unhealthy devices under `unhealthy_action="fail"`."""
    return DeviceFailedError(
        f"the devices of {_client(client_id, host, address)} became unhealthy in phase {phase}, and "
        f"unhealthy_action='fail' there: {cause.rstrip('.')}. Restart the job once that host is mended, or without it.",
        client_id=client_id,
        address=address,
        host=host,
        phase=phase,
        cause=cause,
    )


def rendezvous_timeout(
    num_clients: int,
    timeout: float,
    missing: dict[int, str],
    present: dict[int, str],
    reason: str,
    *,
    more_missing: int,
    more_present: int,
    came: bool,
) -> RendezvousTimeoutError:
    """Return the exception for a job that did not come up in time.

    Args:
        num_clients: of the job.
        timeout: `initialization_timeout`, in seconds.
        missing: the clients waited for, with their addresses.
        present: those known to be there.
        reason: what is known beyond that, or empty.
        more_missing: how many others are waited for, of which only the number is known.
        more_present: how many others are there.
        came: whether the missing ones had registered, and were only slow.
    """
    text = (
        f"{len(missing) + more_missing} of {num_clients} clients {'were not ready' if came else 'did not come'} within "
        f"initialization_timeout={timeout:g} s: {name_clients(missing, more_missing)}"
    )
    if reason:
        text += f" ({reason})"
    return RendezvousTimeoutError(
        f"{text}. Present: {name_ids(present, more_present)}. {_ADVICE_SLOW if came else _ADVICE_ABSENT}",
        missing=missing,
        present=present,
    )


def not_joined(
    client_id: int, timeout: float, missing: dict[int, str], more: int, first: MemberInfo, phase: str
) -> PeerFailedError:
    """Return the exception for a shutdown that others did not join in time.

    Args:
        client_id: who shut down.
        timeout: its `shutdown_timeout`, in seconds.
        missing: the clients that it waited for, with their addresses.
        more: how many others it waited for.
        first: one of them.
        phase: what that one is known to do instead.
    """
    cause = f"it did not join the shutdown of client {client_id} within shutdown_timeout={timeout:g} s"
    return PeerFailedError(
        f"client {client_id} left the job without {name_clients(missing, more)}, which did not join its shutdown "
        f"within shutdown_timeout={timeout:g} s: {_client(first.client_id, first.hostname, first.address)} is in phase "
        f"{phase}. Look at what keeps them, or give them a longer shutdown_timeout.",
        client_id=first.client_id,
        address=first.address,
        host=first.hostname,
        phase=phase,
        cause=cause,
    )


def collective_without(leaver: MemberInfo, collectives: int, client_id: int, number: int) -> PeerFailedError:
    """Return the exception for a collective that a leaving client does not join.

    Args:
        leaver: who is leaving.
        collectives: how many its program has called.
        client_id: whose call this is.
        number: which of its program's collectives that is.
    """
    leaves = "is leaving the job (shutdown)" + (f" after collective {collectives}" if collectives else "")
    waits = f"client {client_id} waits in collective {number}"
    return PeerFailedError(
        f"client {leaver.client_id} ({leaver.hostname}, {leaver.address}) {leaves}; {waits}. Let every client call "
        "as many as the others before it shuts down.",
        client_id=leaver.client_id,
        address=leaver.address,
        host=leaver.hostname,
        phase=Phase.LEAVING,
        cause=f"it {leaves}, and {waits}",
    )


def services_lost(
    own: MemberInfo, server: MemberInfo, phase: str, reason: str, *, kept: int, received: int
) -> BringupError:
    """Return the exception for a session with the coordination services that cannot go on, while both clients live.

    Args:
        own: who has lost it.
        server: client 0.
        phase: of this client.
        reason: why it has ended.
        kept: messages of this client that the services have not acknowledged.
        received: messages that this client has received.
    """
    who, where = (_client(member.client_id, member.hostname, member.address) for member in (own, server))
    return BringupError(
        f"{who} lost its session with the coordination services of {where} in phase {phase}: {reason.rstrip('.')} "
        f"(not acknowledged: {kept} messages of at most {SERVICES_KEPT_MAX}; received: {received}). Both may still "
        f"run: look at the logs of both, and for what cuts off or delays connections to {server.link_address}; let the "
        "program have fewer calls at once if it makes very many; restart the job."
    )


def name_clients(addresses: dict[int, str], more: int = 0) -> str:
    """Return clients, and how many `more` there are, for a text, with their addresses if they are few."""
    if more or len(addresses) > _NAMED_MAX or not all(addresses.values()):
        return f"client{'s' * (len(addresses) + more > 1)} {format_ids(addresses, more)}"
    return ", ".join(f"client {client_id} ({address})" for client_id, address in sorted(addresses.items()))


def goodbye_cause(error: BaseException) -> str:
    """Return the cause of `error` for the other clients."""
    if isinstance(error, PeerFailedError) and error.phase != Phase.LEAVING:
        return error.cause  # of one who leaves, only what waited for it says what is wrong
    if isinstance(error, KeyboardInterrupt) and not str(error):
        return "it was interrupted (Ctrl-C)"
    return str(error)[:_CAUSE_CHARACTERS_MAX] or "no further word"


def _who(verdict: Verdict) -> str:
    return _client(verdict.client_id, verdict.hostname, verdict.address)


def _client(client_id: int, host: str, address: str) -> str:
    return f"client {client_id} ({', '.join(part for part in (host, address) if part)})"


def end_error(failed: BaseException | None) -> BaseException:
    """Return a new exception for a call into a client whose job has ended, by `failed` or, with `None`, in order."""
    return NotInitializedError("the system was shut down") if failed is None else fresh(failed)


def forked_from(pid: int) -> str:
    """Return the text of an error in a forked child of a client, whose process id is `pid`."""
    return (
        f"this process was forked from process {pid}, and has no part in its job: "
        "start clients as processes of their own"
    )


def fresh(error: E) -> E:
    """Return a copy of an exception without its traceback: one failure is raised to many callers."""
    duplicate = copy.copy(error)
    duplicate.__traceback__ = None
    duplicate.__cause__ = error.__cause__
    return duplicate
