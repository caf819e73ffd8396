"""mpi4py, only where asked for by name: any MPI, whose ranks are the clients; MPI itself carries client 0's address."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..errors import ConfigurationError
from ..transport.addresses import Address
from .base import ClusterJob, Detection
from .own_address import free_port, own_host
from .ports import given_port, named_port
from .variables import Variables

T = TypeVar("T")

_REMEDY = "install mpi4py with the MPI that starts the clients, or leave resolver= out"

# Bytes for `host:port`; more than any name has.
_ADDRESS_MAX = 512


class MPI4Py:
    """See `ClusterResolver`."""

    name = "mpi4py"

    def detect(self, environment: Mapping[str, str]) -> Detection:
        """See `ClusterResolver.detect`. To ask would initialize MPI, so it is never detected."""
        return Detection.absent("only resolver='mpi4py' asks it: that initializes MPI")

    async def resolve(self, environment: Mapping[str, str]) -> ClusterJob:
        """See `ClusterResolver.resolve`. Every rank of `MPI.COMM_WORLD` must call it."""
        variables = Variables(environment, self.name, _REMEDY)
        given = given_port(variables)
        mpi = await _in_thread(_load)
        world = mpi.COMM_WORLD
        size, rank = world.Get_size(), world.Get_rank()
        local_id, local_size = await _in_thread(lambda: _local(mpi))
        address = ""
        if rank == 0:
            host = "127.0.0.1" if local_size == size else await own_host([mpi.Get_processor_name()])
            address = str(Address(host, given or free_port(named_port(host))))
        return ClusterJob(
            num_clients=size,
            client_id=rank,
            coordinator_address=await _in_thread(lambda: _broadcast(mpi, address)),
            local_client_id=local_id,
            num_local_clients=local_size,
            origins=dict.fromkeys(
                ("num_clients", "client_id", "coordinator_address", "local_client_id"), "MPI.COMM_WORLD"
            ),
        )


def _load() -> Any:
    try:
        from mpi4py import MPI
    except Exception as error:  # it raises RuntimeError where there is no MPI library
        raise ConfigurationError(
            f"resolver 'mpi4py' cannot import mpi4py.MPI: {error}. {_REMEDY.capitalize()}"
        ) from error
    if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
        raise ConfigurationError(
            "resolver 'mpi4py' calls MPI in a thread of its own, and MPI was initialized for one thread only: "
            "initialize it with MPI.THREAD_SERIALIZED or MPI.THREAD_MULTIPLE, mpi4py's default"
        )
    return MPI


def _local(mpi: Any) -> tuple[int, int]:
    """Return the rank of this process among those of its host, and their number."""
    host = mpi.COMM_WORLD.Split_type(mpi.COMM_TYPE_SHARED)
    try:
        return host.Get_rank(), host.Get_size()
    finally:
        host.Free()


def _broadcast(mpi: Any, address: str) -> str:
    # A buffer, as mpi4py sends objects by pickle.
    buffer = bytearray(address.encode().ljust(_ADDRESS_MAX, b"\0"))
    mpi.COMM_WORLD.Bcast([buffer, mpi.BYTE], root=0)
    return bytes(buffer).rstrip(b"\0").decode()


async def _in_thread(call: Callable[[], T]) -> T:
    """Run a call that may block for ever in a daemon thread: cancelling abandons it."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            outcome: tuple[Any, BaseException | None] = call(), None
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            outcome = None, error
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits any more
            loop.call_soon_threadsafe(settle, *outcome)

    def settle(value: T, failure: BaseException | None) -> None:
        if result.done():
            return
        if failure is None:
            result.set_result(value)
        else:
            result.set_exception(failure)

    threading.Thread(target=run, daemon=True, name="bringup-mpi4py").start()
    return await result
