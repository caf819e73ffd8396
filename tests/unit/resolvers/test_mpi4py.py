"""mpi4py, with a stand-in of its one module: asked by name only, in threads of its own, without pickle."""

from __future__ import annotations

import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from bringup.errors import ConfigurationError
from bringup.resolvers.mpi4py import MPI4Py
from bringup.runtime.configuration.resolve import resolve_job


class World:
    """A communicator; that of the host has all ranks, or only this one."""

    def __init__(self, rank: int, size: int, local: World | None, address: bytes = b"") -> None:
        self.rank, self.size, self.local, self.address = rank, size, local, address

    def Get_rank(self) -> int:  # noqa: N802
        return self.rank

    def Get_size(self) -> int:  # noqa: N802
        return self.size

    def Split_type(self, kind: object) -> World:  # noqa: N802
        assert self.local is not None
        return self.local

    def Free(self) -> None:  # noqa: N802
        pass

    def Bcast(self, message: list[Any], root: int) -> None:  # noqa: N802
        assert root == 0
        assert threading.current_thread().daemon
        buffer: bytearray = message[0]
        if self.rank:
            buffer[: len(self.address)] = self.address


def install(monkeypatch: pytest.MonkeyPatch, world: World, provided: int = 3) -> None:
    module = ModuleType("mpi4py")
    mpi = SimpleNamespace(
        COMM_WORLD=world,
        COMM_TYPE_SHARED=0,
        BYTE=None,
        THREAD_SERIALIZED=2,
        Query_thread=lambda: provided,
        Get_processor_name=lambda: "localhost",
    )
    module.MPI = mpi  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mpi4py", module)


def test_only_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, World(1, 2, World(1, 2, None), b"127.0.0.1:7000"))
    assert resolve_job(environ={}).is_local
    spec = resolve_job(environ={}, resolver="mpi4py")
    assert (spec.source, spec.coordinator_address, spec.client_id) == ("mpi4py", "127.0.0.1:7000", 1)
    assert (spec.local_client_id, spec.num_local_clients) == (1, 2)
    assert "initializes MPI" in MPI4Py().detect({}).ground


@pytest.mark.parametrize("environ", [{}, {"BRINGUP_PORT": "4321"}])
def test_rank_0_chooses(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> None:
    install(monkeypatch, World(0, 2, World(0, 2, None)))
    address = resolve_job(environ=environ, resolver="mpi4py").coordinator_address
    assert address is not None
    assert address.startswith(f"127.0.0.1:{environ.get('BRINGUP_PORT', '')}"), "all on one host"
    install(monkeypatch, World(0, 2, World(0, 1, None)))
    address = resolve_job(environ=environ, resolver="mpi4py").coordinator_address
    assert address is not None
    assert not address.startswith("127."), "another host would look for it on itself"


def test_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(ConfigurationError, match=r"cannot import mpi4py.MPI: .*[Ii]nstall mpi4py"):
        resolve_job(environ={}, resolver="mpi4py")


def test_an_mpi_of_one_thread_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, World(0, 2, World(0, 2, None)), provided=1)
    with pytest.raises(ConfigurationError, match=r"for one thread only: initialize it with MPI\.THREAD_SERIALIZED"):
        resolve_job(environ={}, resolver="mpi4py")
