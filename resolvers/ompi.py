"""Open MPI 4 and 5: the ranks that `mpirun` started are the clients; variables name the host of `mpirun`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..transport.addresses import Address
from .base import ClusterJob, Detection
from .ports import coordinator_port, derived_port, named_port, origin
from .variables import Variables, is_set, shown

_REMEDY = (
    "start the clients by mpirun, on the host of rank 0; or pass resolver='mpi4py', or give the job by BRINGUP_JOBS "
    "and BRINGUP_CLIENT_ID"
)

_HEAD = "OMPI_MCA_orte_hnp_uri"
_NAMESPACE = "PMIX_NAMESPACE"

# Open MPI 4: `1531576320.0;tcp://10.96.0.1,10.148.0.1:34911;tcp6://[fd00::2]:58727`.
_JOB = re.compile(r"([0-9]{1,18})\.")
_ADDRESS = re.compile(r"tcp://([^,:;/]+)|tcp6://\[([^],;/]+)")
# Open MPI 5: `prterun-node-1-25216@1`, with the host and the process of mpirun, and the number of the job there.
_PRRTE = re.compile(r"[a-z]+-(.+)-[0-9]+@[0-9]+")


class OpenMPI:
    """See `ClusterResolver`. Named as in jax."""

    name = "ompi"

    def detect(self, environment: Mapping[str, str]) -> Detection:
        """See `ClusterResolver.detect`."""
        ranks = shown(environment, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
        if environment.get("OMPI_COMM_WORLD_SIZE", "").strip() == "1":
            return Detection.alone(f"{ranks} is one process")
        if ranks or is_set(environment, _HEAD):
            return Detection.present(ranks or shown(environment, _HEAD))
        if is_set(environment, "PRTE_LAUNCHED", "PMIX_RANK"):
            # prterun and prun without Open MPI: PMIx knows the number of processes, and its variables do not.
            return Detection.partial(f"{shown(environment, 'PMIX_RANK', _NAMESPACE)} says that there are several")
        return Detection.absent("OMPI_COMM_WORLD_SIZE is not set")

    async def resolve(self, environment: Mapping[str, str]) -> ClusterJob:
        """See `ClusterResolver.resolve`."""
        variables = Variables(environment, self.name, _REMEDY)
        size = variables.integer("OMPI_COMM_WORLD_SIZE", least=1)
        rank = variables.rank("OMPI_COMM_WORLD_RANK", size, "OMPI_COMM_WORLD_SIZE")
        local_size = None
        if variables.get("OMPI_COMM_WORLD_LOCAL_SIZE"):
            local_size = variables.integer("OMPI_COMM_WORLD_LOCAL_SIZE", least=1, most=size)
        given_by, host, derived = _head(variables)
        if local_size == size:
            host = "127.0.0.1"
        elif rank == 0:
            _check_runs_on_head(variables, host)
        return ClusterJob(
            num_clients=size,
            client_id=rank,
            coordinator_address=str(Address(host, coordinator_port(variables, derived))),
            local_client_id=variables.integer("OMPI_COMM_WORLD_LOCAL_RANK"),
            num_local_clients=local_size,
            origins={
                "num_clients": "OMPI_COMM_WORLD_SIZE",
                "client_id": "OMPI_COMM_WORLD_RANK",
                "local_client_id": "OMPI_COMM_WORLD_LOCAL_RANK",
                "coordinator_address": origin(
                    "OMPI_COMM_WORLD_LOCAL_SIZE" if local_size == size else given_by, variables, given_by
                ),
            },
        )


def _head(variables: Variables) -> tuple[str, str, int]:
    """Return the variable that names the host of mpirun, that host, and the port that derives from the job."""
    if (uri := variables.get(_HEAD)) is not None:
        job, address = _JOB.match(uri), _ADDRESS.search(uri)
        if job is None or address is None:
            raise variables.wrong(_HEAD, "has no job number or no TCP address")
        return _HEAD, address[1] or address[2], derived_port(int(job[1]) // 4096)
    namespace = variables.get(_NAMESPACE)
    matched = _PRRTE.fullmatch(namespace or "")
    if namespace is None or matched is None:
        raise variables.refusal(
            f"{_HEAD} is not set, as Open MPI 4 does, and {_NAMESPACE}={namespace!r:.200} does not name the host of "
            "mpirun, as that of Open MPI 5 does, prterun-HOST-PID@JOB"
        )
    return _NAMESPACE, matched[1], named_port(namespace)


def _check_runs_on_head(variables: Variables, head: str) -> None:
    """Refuse a rank 0 on another host than mpirun: the others would dial that one in vain, until they time out."""
    daemon, own = variables.get("OMPI_MCA_orte_local_daemon_uri"), variables.get("PMIX_HOSTNAME")
    if variables.get(_HEAD) is not None:
        is_elsewhere = daemon is not None and daemon != variables.get(_HEAD)
    else:
        is_elsewhere = own is not None and own.partition(".")[0].lower() != head.partition(".")[0].lower()
    if is_elsewhere:
        raise variables.refusal(
            f"rank 0 runs on {own or 'another host'}, and the other ranks know the host of mpirun only, {head}"
        )
