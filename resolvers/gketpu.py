"""Cloud TPU in Kubernetes (GKE): the workers of all slices are the clients, as their variables say. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ..transport.addresses import Address, parse_host
from .base import ClusterJob, Detection
from .ports import coordinator_port, origin
from .variables import PROCESSES_MAX, Variables, is_set, shown

_REMEDY = "GKE sets it in every pod of a TPU slice; elsewhere give the job by BRINGUP_JOBS and BRINGUP_CLIENT_ID"

# As in jax: the first that is set names the workers of this slice.
_WORKERS = ("TPU_PROCESS_ADDRESSES", "TPU_WORKER_HOSTNAMES")

# As jax on Cloud TPU.
_PORT = 8482


class GkeTPU:
    """See `ClusterResolver`. Named as in jax."""

    name = "gketpu"

    def detect(self, environment: Mapping[str, str]) -> Detection:
        """See `ClusterResolver.detect`."""
        name = next((name for name in _WORKERS if is_set(environment, name)), None)
        if name is None:
            if is_set(environment, "MEGASCALE_COORDINATOR_ADDRESS"):
                return Detection.partial(f"{shown(environment, 'MEGASCALE_COORDINATOR_ADDRESS')} is of several slices")
            return Detection.absent("TPU_WORKER_HOSTNAMES is not set")
        slices = environment.get("MEGASCALE_NUM_SLICES", "").strip()
        if "," not in environment[name] and slices in ("", "1"):
            return Detection.alone(f"{shown(environment, name)} is one worker")
        return Detection.present(shown(environment, name, "TPU_WORKER_ID"))

    async def resolve(self, environment: Mapping[str, str]) -> ClusterJob:
        """See `ClusterResolver.resolve`."""
        variables = Variables(environment, self.name, _REMEDY)
        name = variables.first(*_WORKERS) or _WORKERS[1]
        workers = variables.text(name).split(",")
        slices, slice_id = 1, 0
        if variables.get("MEGASCALE_NUM_SLICES"):
            slices = variables.integer("MEGASCALE_NUM_SLICES", least=1, most=PROCESSES_MAX // len(workers) or 1)
            slice_id = variables.rank("MEGASCALE_SLICE_ID", slices, "MEGASCALE_NUM_SLICES")
        worker = variables.rank("TPU_WORKER_ID", len(workers), f"the number of workers in {name}")
        head = "MEGASCALE_COORDINATOR_ADDRESS"
        if variables.get(head) is None:
            if slices > 1:
                raise variables.missing(head)
            head = name
        host = _host(variables, head, variables.text(head).split(",")[0])
        counted = name if slices == 1 else f"{name}, MEGASCALE_NUM_SLICES"
        return ClusterJob(
            num_clients=len(workers) * slices,
            client_id=worker + slice_id * len(workers),
            coordinator_address=str(Address(host, coordinator_port(variables, _PORT))),
            origins={
                "num_clients": counted,
                "client_id": "TPU_WORKER_ID" if slices == 1 else "TPU_WORKER_ID, MEGASCALE_SLICE_ID",
                "coordinator_address": origin(head, variables),
            },
        )


def _host(variables: Variables, name: str, text: str) -> str:
    """Return the host of `host` or `host:port`: the port is that of another service.

    Raises:
        ConfigurationError: it is neither.
    """
    text = text.strip()
    if text.count(":") == 1 or text.startswith("["):
        text = text.removesuffix(":" + text.rpartition(":")[2]) if not text.endswith("]") else text
    try:
        return parse_host(text)
    except ValueError as error:
        raise variables.wrong(name, f"has no host at its beginning: {error}") from None
