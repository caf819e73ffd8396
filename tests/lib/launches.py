"""Environments of real launches: of every process that srun, mpirun, mpiexec or torchrun started."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bringup.resolvers.base import ClusterJob, ClusterResolver, Detection
from bringup.runtime.configuration.job import JobSpec
from bringup.runtime.configuration.resolve import resolve_job

_VECTORS = Path(__file__).parents[1] / "unit" / "vectors"


def vectors(name: str) -> Any:
    """Return the data of one file of tests/unit/vectors."""
    return json.loads((_VECTORS / f"{name}.json").read_text())


def launch(name: str) -> list[dict[str, str]]:
    """Return the environments of all processes of a launch, in the order of their ranks."""
    recorded = vectors("launches")[name]
    return [recorded["all"] | each for each in recorded["each"]]


def ask(resolver: ClusterResolver, environment: Mapping[str, str]) -> ClusterJob:
    """Return the job that a resolver describes."""
    return asyncio.run(resolver.resolve(environment))


def detected(resolver: ClusterResolver, environment: Mapping[str, str]) -> Detection:
    """Return what a resolver of bringup itself detects."""
    found = resolver.detect(environment)
    assert isinstance(found, Detection)
    return found


def specs(name: str) -> list[JobSpec]:
    """Return the jobs that all processes of a launch resolve, as `initialize()` would."""
    return [resolve_job(environ=environment) for environment in launch(name)]
