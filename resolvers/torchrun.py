"""torchrun, and whatever sets the variables of `torch.distributed`'s `env://`: its ranks are the clients. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ..transport.addresses import Address
from .base import ClusterJob, Detection
from .ports import PORT_VARIABLES, coordinator_port, derived_port, origin
from .variables import Variables, is_set, shown

_REMEDY = "start the clients by torchrun, which sets it for every rank, or give the job by BRINGUP_JOBS"

_MARKS = ("MASTER_ADDR", "RANK", "WORLD_SIZE")


class Torchrun:
    """See `ClusterResolver`."""

    name = "torchrun"

    def detect(self, environment: Mapping[str, str]) -> Detection:
        """See `ClusterResolver.detect`."""
        # A script of Slurm or MPI may set all but RANK, and leave that to the tasks.
        if not is_set(environment, "TORCHELASTIC_RUN_ID") and not is_set(environment, *_MARKS):
            return self._detect_some(environment)
        ranks = shown(environment, "RANK", "WORLD_SIZE")
        if environment.get("WORLD_SIZE", "").strip() == "1":
            return Detection.alone(f"{ranks} is one process")
        return Detection.present(ranks or shown(environment, "TORCHELASTIC_RUN_ID"))

    def _detect_some(self, environment: Mapping[str, str]) -> Detection:
        missing = [name for name in _MARKS if not is_set(environment, name)]
        size = environment.get("WORLD_SIZE", "").strip()
        if len(missing) == 1 and size != "1":
            return Detection.partial(f"{shown(environment, *_MARKS)} are set, and {missing[0]} is not")
        return Detection.absent(f"{missing[0]} is not set")

    async def resolve(self, environment: Mapping[str, str]) -> ClusterJob:
        """See `ClusterResolver.resolve`."""
        variables = Variables(environment, self.name, _REMEDY)
        size = variables.integer("WORLD_SIZE", least=1)
        rank = variables.rank("RANK", size, "WORLD_SIZE")
        host, port = variables.host("MASTER_ADDR"), _port(variables)
        return ClusterJob(
            num_clients=size,
            client_id=rank,
            coordinator_address=str(Address(host, port)),
            local_client_id=variables.integer("LOCAL_RANK") if variables.get("LOCAL_RANK") else None,
            num_local_clients=(
                variables.integer("LOCAL_WORLD_SIZE", least=1) if variables.get("LOCAL_WORLD_SIZE") else None
            ),
            origins={
                "num_clients": "WORLD_SIZE",
                "client_id": "RANK",
                "coordinator_address": origin("MASTER_ADDR", variables, "MASTER_PORT"),
                "local_client_id": "LOCAL_RANK",
            },
        )


def _port(variables: Variables) -> int:
    """Return a port that is not `MASTER_PORT`: the store of torchrun's agent, or of rank 0, listens there."""
    taken = variables.integer("MASTER_PORT", least=1, most=65535)
    derived = derived_port(taken)
    if derived == taken:
        derived = derived_port(taken + 2048)
    port = coordinator_port(variables, derived)
    if port == taken:
        given = variables.first(*PORT_VARIABLES)
        assert given is not None
        raise variables.wrong(given, f"is MASTER_PORT={taken}, where the store of torch.distributed listens")
    return port
