"""Amazon SageMaker training jobs: one client on each host. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from ..transport.addresses import Address
from .base import ClusterJob, Detection
from .ports import coordinator_port, origin
from .variables import Variables, is_set, shown

_REMEDY = "SageMaker sets it in the training container; elsewhere give the job by BRINGUP_JOBS and BRINGUP_CLIENT_ID"

# As TensorFlow's resolver for SageMaker: hosts of a training job reach each other at any port.
_PORT = 2223


class SageMaker:
    """See `ClusterResolver`."""

    name = "sagemaker"

    def detect(self, environment: Mapping[str, str]) -> Detection:
        """See `ClusterResolver.detect`."""
        if not is_set(environment, "SM_HOSTS"):
            return Detection.absent("SM_HOSTS is not set")
        try:
            hosts = _hosts(environment["SM_HOSTS"])
        except ValueError:
            return Detection.present("SM_HOSTS is set")
        if len(hosts) == 1:
            return Detection.alone(f"{shown(environment, 'SM_HOSTS')} is one host")
        return Detection.present(f"SM_HOSTS names {len(hosts)} hosts")

    async def resolve(self, environment: Mapping[str, str]) -> ClusterJob:
        """See `ClusterResolver.resolve`."""
        variables = Variables(environment, self.name, _REMEDY)
        try:
            hosts = _hosts(variables.text("SM_HOSTS"))
        except ValueError as error:
            raise variables.wrong("SM_HOSTS", str(error)) from None
        current, port = variables.text("SM_CURRENT_HOST"), coordinator_port(variables, _PORT)
        if current not in hosts:
            raise variables.wrong("SM_CURRENT_HOST", f"is not among the hosts of SM_HOSTS, {', '.join(hosts)}")
        return ClusterJob(
            num_clients=len(hosts),
            client_id=hosts.index(current),
            jobs=tuple(str(Address(host, port)) for host in hosts),
            local_client_id=0,
            num_local_clients=1,
            origins={
                "jobs": origin("SM_HOSTS", variables),
                "num_clients": "SM_HOSTS",
                "client_id": "SM_CURRENT_HOST",
                "local_client_id": "SM_HOSTS",
            },
        )


def _hosts(text: str) -> list[str]:
    """Return the hosts by their numbers: `algo-2` before `algo-10`."""
    try:
        hosts = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(hosts, list) or not hosts or not all(isinstance(host, str) and host for host in hosts):
        raise ValueError("is not a list of host names")
    return sorted(hosts, key=_natural)


def _natural(host: str) -> list[tuple[str, int]]:
    return [(text, int(digits or -1)) for text, digits in re.findall(r"(\D+|^)(\d{0,18})", host)]
