"""MPICH, Intel MPI and others with PMI: client 0 tells the other ranks its address through their launcher."""

from __future__ import annotations

from collections.abc import Mapping

from ..transport.addresses import Address
from .base import ClusterJob, Detection
from .own_address import free_port, own_host
from .pmi_wire import PMIWire, WireError
from .ports import given_port, named_port
from .variables import Variables, is_set, shown

_REMEDY = "start the clients by mpiexec.hydra, which sets it, or give the job by BRINGUP_JOBS and BRINGUP_CLIENT_ID"

_OF_HYDRA = ("HYDI_CONTROL_FD", "MPI_LOCALRANKID")
_KEY = "bringup-coordinator"


class PMI:
    """See `ClusterResolver`."""

    name = "pmi"

    def detect(self, environment: Mapping[str, str]) -> Detection:
        """See `ClusterResolver.detect`."""
        ranks = shown(environment, "PMI_RANK", "PMI_SIZE") or shown(environment, "PMI_ID", "PMI_PORT")
        if not ranks:
            return Detection.absent("PMI_RANK is not set")
        if is_set(environment, "SLURM_MPI_TYPE") and not any(is_set(environment, name) for name in _OF_HYDRA):
            return Detection.absent(f"{shown(environment, 'SLURM_MPI_TYPE')}: srun is the launcher")
        if environment.get("PMI_SIZE", "").strip() == "1":
            return Detection.alone(f"{ranks} is one process")
        return Detection.present(ranks)

    async def resolve(self, environment: Mapping[str, str]) -> ClusterJob:
        """See `ClusterResolver.resolve`. Every rank must call it: client 0's address comes after a barrier."""
        variables = Variables(environment, self.name, _REMEDY)
        size = variables.integer("PMI_SIZE", least=1)
        rank = variables.rank("PMI_RANK", size, "PMI_SIZE")
        local_id, local_size = (
            variables.integer(name, most=size) if variables.get(name) else None
            for name in ("MPI_LOCALRANKID", "MPI_LOCALNRANKS")
        )
        try:
            address = await self._exchanged(variables, rank, is_one_host=local_size == size)
        except WireError as error:
            raise variables.wrong("PMI_FD", str(error)) from None
        return ClusterJob(
            num_clients=size,
            client_id=rank,
            coordinator_address=address,
            local_client_id=local_id,
            num_local_clients=local_size,
            origins={
                "num_clients": "PMI_SIZE",
                "client_id": "PMI_RANK",
                "local_client_id": "MPI_LOCALRANKID",
                "coordinator_address": "client 0, through PMI_FD",
            },
        )

    async def _exchanged(self, variables: Variables, rank: int, *, is_one_host: bool) -> str:
        given = given_port(variables)
        with PMIWire(variables.integer("PMI_FD", most=1 << 20)) as wire:
            space = await wire.begin()
            address = None
            if rank == 0:
                # Names by which the launcher reaches this host.
                names = map(variables.get, ("PMI_HOSTNAME", "MPIR_CVAR_CH3_INTERFACE_HOSTNAME"))
                host = "127.0.0.1" if is_one_host else await own_host([name for name in names if name])
                address = str(Address(host, given or free_port(named_port(space))))
            return await wire.exchange(space, _KEY, address)
