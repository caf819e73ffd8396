"""Indexed Jobs of Kubernetes: recognized, so that no pod takes itself for the whole job; not read yet. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from .base import ClusterJob, Detection
from .variables import Variables, is_set, shown

_REMEDY = "give the job by BRINGUP_JOBS, or by BRINGUP_JOBS of client 0 with BRINGUP_NUM_CLIENTS, and BRINGUP_CLIENT_ID"


class Kubernetes:
    """See `ClusterResolver`. Named as in jax."""

    name = "k8s"

    def detect(self, environment: Mapping[str, str]) -> Detection:
        """See `ClusterResolver.detect`."""
        if not is_set(environment, "JOB_COMPLETION_INDEX"):
            return Detection.absent("JOB_COMPLETION_INDEX is not set")
        return Detection.partial(f"{shown(environment, 'JOB_COMPLETION_INDEX')} is a pod of an Indexed Job")

    async def resolve(self, environment: Mapping[str, str]) -> ClusterJob:
        """See `ClusterResolver.resolve`."""
        variables = Variables(environment, self.name, _REMEDY)
        index = variables.integer("JOB_COMPLETION_INDEX")
        raise variables.refusal(
            f"this is pod {index} of an Indexed Job (JOB_COMPLETION_INDEX), and Kubernetes is not asked yet "
            "how many there are"
        )
