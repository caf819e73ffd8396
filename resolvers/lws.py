"""LeaderWorkerSet of Kubernetes: the pods of one group are the clients, its leader is client 0. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ..transport.addresses import Address
from .base import ClusterJob, Detection
from .ports import coordinator_port, origin
from .variables import Variables, is_set, shown

_REMEDY = "LeaderWorkerSet 0.5 and newer set it in every pod; else give the job by BRINGUP_JOBS and BRINGUP_CLIENT_ID"

# As jax in Kubernetes: every pod has an IP address, and so all ports, of its own.
_PORT = 55527


class LeaderWorkerSet:
    """See `ClusterResolver`."""

    name = "lws"

    def detect(self, environment: Mapping[str, str]) -> Detection:
        """See `ClusterResolver.detect`."""
        if not is_set(environment, "LWS_LEADER_ADDRESS") and not is_set(environment, "LWS_GROUP_SIZE"):
            return Detection.absent("LWS_LEADER_ADDRESS is not set")
        group = shown(environment, "LWS_GROUP_SIZE", "LWS_WORKER_INDEX")
        if environment.get("LWS_GROUP_SIZE", "").strip() == "1":
            return Detection.alone(f"{group} is one pod")
        return Detection.present(group or shown(environment, "LWS_LEADER_ADDRESS"))

    async def resolve(self, environment: Mapping[str, str]) -> ClusterJob:
        """See `ClusterResolver.resolve`."""
        variables = Variables(environment, self.name, _REMEDY)
        size = variables.integer("LWS_GROUP_SIZE", least=1)
        return ClusterJob(
            num_clients=size,
            client_id=variables.rank("LWS_WORKER_INDEX", size, "LWS_GROUP_SIZE"),
            coordinator_address=str(Address(variables.host("LWS_LEADER_ADDRESS"), coordinator_port(variables, _PORT))),
            local_client_id=0,
            num_local_clients=1,
            origins={
                "num_clients": "LWS_GROUP_SIZE",
                "client_id": "LWS_WORKER_INDEX",
                "coordinator_address": origin("LWS_LEADER_ADDRESS", variables),
                "local_client_id": "LWS_GROUP_SIZE",
            },
        )
