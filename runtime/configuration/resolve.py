"""The resolution of the job: the first of its sources, in a fixed order, that applies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...errors import ConfigurationError
from .environment import FAMILIES, LOCAL_CLIENT_ID, local_clients
from .job import Considered, JobSource, JobSpec
from .job_facts import JobFacts, as_job_name, as_jobs, find_job
from .settings import Origin, Setting

# Asked in this order, after the families of variables and before local mode. Each is a JobSource that reads one
# cluster's environment (Slurm, MPI, Kubernetes, Cloud TPU, ...); `resolver="<name>"` asks for one of them alone.
CLUSTER_RESOLVERS: tuple[JobSource, ...] = ()


def resolve_job(
    *,
    jobs: str | Sequence[str] | None = None,
    client_id: int | None = None,
    num_clients: int | None = None,
    job_name: str | None = None,
    resolver: object | None = None,
    environ: Mapping[str, str],
) -> JobSpec:
    """Resolve the clients of this job, and the id of this one.

    Args:
        jobs: one `host:port` per client, comma-separated or a sequence; or the coordinator's, with `num_clients`.
        client_id: the id of this client.
        num_clients: the number of clients.
        job_name: overrides the name of any source.
        resolver: a cluster resolver (a `JobSource`) or the name of one, to ask instead of the environment's families.
        environ: the environment variables.

    Returns:
        The job from the first source that applies; local mode where none does.

    Raises:
        ConfigurationError: that source is incomplete or malformed; the message names the variable or argument.
    """
    name = Setting("job_name", job_name, Origin.ARGUMENT)
    arguments = _Arguments(
        jobs=Setting("jobs", jobs, Origin.ARGUMENT),
        client_id=Setting("client_id", client_id, Origin.ARGUMENT),
        num_clients=Setting("num_clients", num_clients, Origin.ARGUMENT),
    )
    if resolver is None:
        spec = _first_of((arguments, *FAMILIES, *CLUSTER_RESOLVERS, _LocalMode()), name, environ)
    else:
        spec = _first_of((_only(resolver, arguments, environ),), name, environ)
    return _with_local_clients(spec, environ)


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


class _LocalMode:
    """One client, no network. A job name alone names no clients, so it belongs here."""

    name = "local mode"

    def passed_over(self, environ: Mapping[str, str]) -> str | None:
        return None

    def read(self, environ: Mapping[str, str]) -> JobFacts:
        for variable in ("BRINGUP_JOB_NAME", "DTENSOR_JOB_NAME"):
            setting = Setting.from_environ(environ, variable)
            if setting.is_set:
                return JobFacts(job_name=as_job_name(setting), provenance={"job_name": variable})
        return JobFacts()


def _first_of(sources: Sequence[JobSource], job_name: Setting, environ: Mapping[str, str]) -> JobSpec:
    considered: list[Considered] = []
    for at, source in enumerate(sources):
        reason = source.passed_over(environ)
        if reason is None:
            found = source.read(environ)
            considered.append(Considered(source.name, f"taken: {_ground(found)}"))
            rest = (
                Considered(later.name, f"not looked at: the job comes from {source.name}")
                for later in sources[at + 1 :]
            )
            return _spec(source.name, found, job_name, (*considered, *rest))
        considered.append(Considered(source.name, f"passed over: {reason}"))
    raise AssertionError("the last source always applies")


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


def _only(resolver: object, arguments: JobSource, environ: Mapping[str, str]) -> JobSource:
    """Return the requested resolver, which must apply, and be the only source."""
    source = _named(resolver) if isinstance(resolver, str) else resolver
    if not isinstance(source, JobSource):
        raise ConfigurationError(f"resolver={resolver!r} (argument) is no cluster resolver: {_known()}")
    if arguments.passed_over(environ) is None:
        raise ConfigurationError(
            f"resolver={source.name!r} (argument) was given together with jobs, client_id or num_clients: "
            "the job comes from one source only, so leave out one of the two"
        )
    reason = source.passed_over(environ)
    if reason is not None:
        raise ConfigurationError(f"resolver={source.name!r} (argument) does not apply here: {reason}")
    return source


def _named(name: str) -> JobSource:
    for source in CLUSTER_RESOLVERS:
        if source.name == name.lower():
            return source
    raise ConfigurationError(f"resolver={name!r} (argument) is not known: {_known()}")


def _known() -> str:
    if not CLUSTER_RESOLVERS:
        return "this version of bringup has no cluster resolvers yet, so leave it out and give the job by other means"
    return f"the known ones are {', '.join(source.name for source in CLUSTER_RESOLVERS)}"
