"""The cluster resolvers as sources of the job: which of them is to be asked, and what it answers, checked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...errors import BringupError, ConfigurationError
from ...resolvers import registry
from ...resolvers.base import ClusterJob, ClusterResolver, Detection, Outcome
from .job import Considered
from .job_facts import JobFacts, find_job
from .settings import Origin, Setting, as_integer

# No host runs as many clients: a slip is to be refused.
_LOCAL_CLIENTS_MAX = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSearch:
    """The result of looking for a cluster.

    Attributes:
        resolver: the one to ask; `None` for local mode.
        ground: why local mode: the launcher that says so; empty where none was found.
        considered: all that was looked at.
    """

    resolver: ClusterResolver | None
    ground: str = ""
    considered: tuple[Considered, ...] = ()

    @property
    def source(self) -> str:
        """The name of the resolver."""
        assert self.resolver is not None
        return self.resolver.name

    async def ask(self, environ: Mapping[str, str], timeout: float | None) -> tuple[JobFacts, int | None]:
        """Return the job that the resolver describes, and the number of clients that divide this host's devices.

        Raises:
            ConfigurationError: it fails, needs longer than `timeout` seconds, or describes no possible job.
        """
        assert self.resolver is not None
        try:
            async with asyncio.timeout(timeout):
                job = await self.resolver.resolve(environ)
        except TimeoutError as error:
            raise ConfigurationError(
                f"resolver {self.source!r} had no answer within {timeout:g} s (initialization_timeout): do all clients "
                "of the job run?"
                if timeout is not None
                else f"resolver {self.source!r} timed out: {error!r}"
            ) from error
        except BringupError:
            raise
        except Exception as error:
            raise ConfigurationError(f"resolver {self.source!r} failed: {error!r}") from error
        if not isinstance(job, ClusterJob):
            raise ConfigurationError(f"resolver {self.source!r} returned {job!r:.200}, which is no bringup.ClusterJob")
        return _checked(job, self.source)


def search_one_cluster(resolver: object) -> ClusterSearch:
    """Return the search for the resolver that the user asked for, which must apply.

    Raises:
        ConfigurationError: it is no resolver, or its name is not known.
    """
    if isinstance(resolver, str):
        if resolver.strip().lower() == registry.NONE:
            return ClusterSearch(resolver=None, ground="resolver='none' (argument) asks for it")
        resolver = registry.find_resolver(resolver)
    if not isinstance(resolver, ClusterResolver) or isinstance(resolver, type):
        raise ConfigurationError(
            f"resolver={resolver!r} (argument) is no cluster resolver: give one, or a name; {registry.known_names()}"
        )
    return ClusterSearch(
        resolver=resolver, considered=(Considered(resolver.name, "taken: resolver (argument) asks for it"),)
    )


def search_clusters(before: Sequence[Considered], environ: Mapping[str, str]) -> ClusterSearch:
    """Look for the cluster that started this process: the first resolver that detects it.

    Args:
        before: the sources that were considered before.
        environ: the environment variables.

    Raises:
        ConfigurationError: an installed resolver is broken.
    """
    considered = list(before)
    partial: tuple[int, ClusterResolver] | None = None
    for resolver in registry.automatic_resolvers():
        found = _detected(resolver, environ)
        if found.outcome is Outcome.PRESENT:
            considered.append(Considered(resolver.name, f"taken: {found.ground}"))
            return ClusterSearch(resolver=resolver, considered=tuple(considered))
        considered.append(Considered(resolver.name, f"passed over: {found.ground}"))
        if found.outcome is Outcome.ALONE:
            ground = f"{found.ground} ({resolver.name})"
            return ClusterSearch(resolver=None, ground=ground, considered=tuple(considered))
        if found.outcome is Outcome.PARTIAL and partial is None:
            partial = len(considered) - 1, resolver
    if partial is None:
        return ClusterSearch(resolver=None, considered=tuple(considered))
    # It names several processes, and nothing else knows which of them this is: its error says what is missing.
    at, resolver = partial
    considered[at] = Considered(resolver.name, considered[at].verdict.replace("passed over", "taken", 1))
    return ClusterSearch(resolver=resolver, considered=tuple(considered))


def _detected(resolver: ClusterResolver, environ: Mapping[str, str]) -> Detection:
    found = resolver.detect(environ)
    if isinstance(found, Detection):
        return found
    return Detection.present("it detects its cluster") if found else Detection.absent("it does not detect its cluster")


def _checked(job: ClusterJob, source: str) -> tuple[JobFacts, int | None]:
    def setting(name: str) -> Setting:
        return Setting(name, getattr(job, name), Origin.RESOLVER)

    addresses = "coordinator_address" if job.jobs is None else "jobs"
    facts = find_job(
        jobs=setting(addresses),
        num_clients=setting("num_clients"),
        client_id=setting("client_id"),
        job_name=setting("job_name"),
    )
    local, count = setting("local_client_id"), setting("num_local_clients")
    provenance = {
        name: "default" if origin == "default" else _origin(job, name, source)
        for name, origin in facts.provenance.items()
    }
    if local.is_set:
        provenance["local_client_id"] = _origin(job, "local_client_id", source)
    number = None if not count.is_set else as_integer(count, "a number of clients", least=1, most=_LOCAL_CLIENTS_MAX)
    most = (number or _LOCAL_CLIENTS_MAX) - 1
    return (
        JobFacts(
            jobs=facts.jobs,
            coordinator_address=facts.coordinator_address,
            num_clients=facts.num_clients,
            client_id=facts.client_id,
            local_client_id=as_integer(local, "a client's number on its host", least=0, most=most)
            if local.is_set
            else None,
            job_name=facts.job_name,
            provenance=provenance,
        ),
        number,
    )


def _origin(job: ClusterJob, name: str, source: str) -> str:
    """Return the origin of a field; that of the addresses for the one that follows from the other."""
    alike = {"jobs": "coordinator_address", "coordinator_address": "jobs"}.get(name, name)
    return job.origins.get(name) or job.origins.get(alike) or f"resolver {source}"
