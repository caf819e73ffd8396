"""The resolution of the job: the first of its sources, in a fixed order, that applies."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...errors import ConfigurationError
from .cluster import ClusterSearch, search_clusters, search_one_cluster
from .environment import FAMILIES, LOCAL_CLIENT_ID, local_clients
from .job import Considered, JobSource, JobSpec
from .job_facts import JobFacts, as_job_name, as_jobs, find_job
from .request import Request
from .settings import Origin, Setting

_log = logging.getLogger("bringup")


@dataclass(frozen=True, slots=True)
class PendingJob:
    """A job that a cluster resolver has yet to be asked for.

    Attributes:
        search: the resolver, and all that was considered before it.
        job_name: the argument, which overrides the resolver's.
        environ: the environment variables.
    """

    search: ClusterSearch
    job_name: Setting
    environ: Mapping[str, str]

    async def resolve(self, timeout: float | None = None) -> JobSpec:
        """Ask the resolver.

        Args:
            timeout: seconds, `initialization_timeout`.

        Raises:
            ConfigurationError: it cannot tell the job, or not in time.
        """
        facts, num_local_clients = await self.search.ask(self.environ, timeout)
        spec = _spec(self.search.source, facts, self.job_name, self.search.considered)
        return _with_local_clients(replace(spec, num_local_clients=num_local_clients), self.environ)


def find_source(request: Request, environ: Mapping[str, str]) -> JobSpec | PendingJob:
    """Find the source of the job; where that is a cluster resolver, it is to be asked next.

    Raises:
        ConfigurationError: that source is incomplete or malformed; the message names the variable or argument.
    """
    name = Setting("job_name", request.job_name, Origin.ARGUMENT)
    arguments = _Arguments(
        jobs=Setting("jobs", request.jobs, Origin.ARGUMENT),
        client_id=Setting("client_id", request.client_id, Origin.ARGUMENT),
        num_clients=Setting("num_clients", request.num_clients, Origin.ARGUMENT),
    )
    if request.resolver is not None:
        _refuse_two_sources(request.resolver, arguments, environ)
        found = search_one_cluster(request.resolver)
    else:
        taken = _first_of((arguments, *FAMILIES), name, environ)
        if isinstance(taken, JobSpec):
            return _with_local_clients(taken, environ)
        found = search_clusters(taken, environ)
    if found.resolver is not None:
        return PendingJob(found, name, environ)
    return _local_mode(found, name, environ)


def resolve_job(
    *,
    jobs: str | Sequence[str] | None = None,
    client_id: int | None = None,
    num_clients: int | None = None,
    job_name: str | None = None,
    resolver: object | None = None,
    environ: Mapping[str, str],
    timeout: float | None = None,
) -> JobSpec:
    """Resolve the clients of this job, and the id of this one. Blocks where a cluster resolver is asked.

    Args:
        jobs: one `host:port` per client, comma-separated or a sequence; or the coordinator's, with `num_clients`.
        client_id: the id of this client.
        num_clients: the number of clients.
        job_name: overrides the name of any source.
        resolver: a cluster resolver or the name of one, to ask instead of the environment's families; `none` is local
            mode.
        environ: the environment variables.
        timeout: seconds for a cluster resolver.

    Returns:
        The job from the first source that applies; local mode where none does.

    Raises:
        ConfigurationError: that source is incomplete or malformed; the message names the variable or argument.
    """
    request = Request(jobs=jobs, client_id=client_id, num_clients=num_clients, job_name=job_name, resolver=resolver)
    return resolve_request(request, environ, timeout)


def resolve_request(request: Request, environ: Mapping[str, str], timeout: float | None = None) -> JobSpec:
    """Resolve the job of the arguments of `initialize()`; see `resolve_job`."""
    found = find_source(request, environ)
    return found if isinstance(found, JobSpec) else asyncio.run(found.resolve(timeout))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arguments:
    """The arguments of `initialize()`."""

    jobs: Setting
    client_id: Setting
    num_clients: Setting
    name: str = field(default="arguments", init=False)

    def passed_over(self, environ: Mapping[str, str]) -> str | None:
        given = (self.jobs.is_set, self.client_id.is_set, self.num_clients.is_set)
        return None if any(given) else "none of jobs, client_id and num_clients was given"

    def read(self, environ: Mapping[str, str]) -> JobFacts:
        variable = Setting.from_environ(environ, "BRINGUP_CLIENT_ID")
        if self.jobs.is_set and variable.is_set and not self.client_id.is_set and len(as_jobs(self.jobs)) > 1:
            raise ConfigurationError(
                f"client_id is not set, and jobs was given as an argument. {variable} is set, but a job comes from one "
                "source only: pass client_id as well, or leave the jobs to BRINGUP_JOBS"
            )
        return find_job(
            jobs=self.jobs,
            num_clients=self.num_clients,
            client_id=self.client_id,
            job_name=Setting("job_name", None, Origin.ARGUMENT),
        )


def _first_of(
    sources: Sequence[JobSource], job_name: Setting, environ: Mapping[str, str]
) -> JobSpec | list[Considered]:
    """Return the job of the first source that applies, or else the reasons why none does."""
    considered: list[Considered] = []
    for at, source in enumerate(sources):
        reason = source.passed_over(environ)
        if reason is None:
            found = source.read(environ)
            considered.append(Considered(source.name, f"taken: {_ground(found)}"))
            rest = (*(later.name for later in sources[at + 1 :]), "cluster resolvers", LOCAL_MODE)
            considered += [Considered(later, f"not looked at: the job comes from {source.name}") for later in rest]
            return _spec(source.name, found, job_name, tuple(considered))
        considered.append(Considered(source.name, f"passed over: {reason}"))
    return considered


LOCAL_MODE = "local mode"


def _local_mode(found: ClusterSearch, job_name: Setting, environ: Mapping[str, str]) -> JobSpec:
    """One client, no network. A job name alone names no clients, so it belongs here."""
    facts = JobFacts()
    for variable in ("BRINGUP_JOB_NAME", "DTENSOR_JOB_NAME"):
        setting = Setting.from_environ(environ, variable)
        if setting.is_set:
            facts = JobFacts(job_name=as_job_name(setting), provenance={"job_name": variable})
            break
    if found.ground:
        _log.info("local mode: %s", found.ground)
    taken = Considered(LOCAL_MODE, f"taken: {found.ground or _ground(facts)}")
    return _with_local_clients(_spec(LOCAL_MODE, facts, job_name, (*found.considered, taken)), environ)


def _with_local_clients(spec: JobSpec, environ: Mapping[str, str]) -> JobSpec:
    """Add the number of this client on its host, which the launcher sets, to a job of any source."""
    local = local_clients(environ)
    if local is None:
        return spec
    provenance = {**spec.provenance, "local_client_id": LOCAL_CLIENT_ID}
    return replace(spec, local_client_id=local[0], num_local_clients=local[1], provenance=provenance)


def _ground(found: JobFacts) -> str:
    given = found.provenance.get("coordinator_address") or found.provenance.get("num_clients")
    return f"{given} is given" if given else "it is the first that applies"


def _spec(source: str, found: JobFacts, job_name: Setting, considered: tuple[Considered, ...]) -> JobSpec:
    fields = ("jobs", "coordinator_address", "num_clients", "client_id", "local_client_id", "job_name")
    provenance = {name: found.provenance.get(name, "default") for name in fields}
    name = found.job_name or ("localhost" if found.num_clients == 1 else "worker")
    if job_name.is_set:
        name = as_job_name(job_name)
        provenance["job_name"] = job_name.where
    return JobSpec(
        source=source,
        jobs=found.jobs,
        coordinator_address=found.coordinator_address,
        num_clients=found.num_clients,
        client_id=found.client_id,
        local_client_id=found.local_client_id,
        job_name=name,
        considered=considered,
        provenance=provenance,
    )


def _refuse_two_sources(resolver: object, arguments: JobSource, environ: Mapping[str, str]) -> None:
    if arguments.passed_over(environ) is None:
        name = resolver if isinstance(resolver, str) else getattr(resolver, "name", resolver)
        raise ConfigurationError(
            f"resolver={name!r} (argument) was given together with jobs, client_id or num_clients: "
            "the job comes from one source only, so leave out one of the two"
        )
