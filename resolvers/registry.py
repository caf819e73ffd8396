"""The registry of cluster resolvers: built in, in the order in which they are tried, then installed ones."""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, cast

from ..errors import ConfigurationError
from .base import ClusterResolver

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINT_GROUP = "bringup.resolvers"

NONE = "none"
"""The value of `resolver=` that stands for local mode."""

# Name -> module of this package, class; tried in this order. Launchers nest, and a process inherits the variables of
# all of them: so the innermost ones, which a user starts within the allocation of another, come first.
_BUILT_IN: dict[str, tuple[str, str]] = {
    "torchrun": ("torchrun", "Torchrun"),
    "ompi": ("ompi", "OpenMPI"),
    "pmi": ("pmi", "PMI"),
    "tf_config": ("tf_config", "TFConfig"),
    "slurm": ("slurm", "Slurm"),
    "lws": ("lws", "LeaderWorkerSet"),
    "sagemaker": ("sagemaker", "SageMaker"),
    "gketpu": ("gketpu", "GkeTPU"),
    "k8s": ("k8s", "Kubernetes"),
}

# Only by name: to ask such a one starts something of its own.
_ON_REQUEST = {"mpi4py": ("mpi4py", "MPI4Py")}

_ALIASES = {
    "openmpi": "ompi",
    "mpich": "pmi",
    "hydra": "pmi",
    "intelmpi": "pmi",
    "tfconfig": "tf_config",
    "leaderworkerset": "lws",
    "kubernetes": "k8s",
}


def automatic_resolvers() -> tuple[ClusterResolver, ...]:
    """Return all resolvers that are tried without being asked for, in order.

    Raises:
        ConfigurationError: an installed one cannot be loaded.
    """
    installed = sorted(_entry_points(), key=lambda point: point.name)
    return (*map(_built_in, _BUILT_IN), *map(_installed, installed))


def find_resolver(name: str) -> ClusterResolver:
    """Return the resolver of a name, in any case.

    Raises:
        ConfigurationError: there is none, or it cannot be loaded.
    """
    wanted = name.strip().lower()
    wanted = _ALIASES.get(wanted, wanted)
    if wanted in _BUILT_IN or wanted in _ON_REQUEST:
        return _built_in(wanted)
    for point in _entry_points():
        if point.name.lower() == wanted:
            return _installed(point)
    raise ConfigurationError(f"resolver={name!r} (argument) is not known: {known_names()}")


def known_names() -> str:
    """Return the names of all resolvers, in words."""
    names = [*_BUILT_IN, *_ON_REQUEST, *sorted(point.name for point in _entry_points()), NONE]
    return f"the known ones are {', '.join(names)}"


@functools.cache
def _built_in(name: str) -> ClusterResolver:
    module, attribute = (_BUILT_IN | _ON_REQUEST)[name]
    return cast("ClusterResolver", getattr(importlib.import_module(f".{module}", __package__), attribute)())


def _entry_points() -> list[EntryPoint]:
    from importlib.metadata import entry_points  # takes 10 ms to load: not for a job that its arguments describe

    # One distribution may be found in two places of the path.
    return list({point.value: point for point in entry_points(group=ENTRY_POINT_GROUP)}.values())


def _installed(point: EntryPoint) -> ClusterResolver:
    described = f"the cluster resolver {point.name!r} that {_distribution(point)} offers ({point.value})"
    try:
        loaded = point.load()
        resolver = loaded if not isinstance(loaded, type) and isinstance(loaded, ClusterResolver) else loaded()
    except Exception as error:
        raise ConfigurationError(f"{described} cannot be loaded: {error!r}. Mend or uninstall it.") from error
    if not isinstance(resolver, ClusterResolver):
        raise ConfigurationError(f"{described} has no name, detect() and resolve(): see bringup.ClusterResolver")
    return resolver


def _distribution(point: EntryPoint) -> str:
    return "an installed distribution" if point.dist is None else f"{point.dist.name} {point.dist.version}"
