"""The floor of a start-up: gRPC alone, between processes that do nothing else.

Process 0 starts a server; each other opens a channel and one stream, and gets one answer when all are there.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import socket
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from .worker import Assignment, HostPipe

_METHOD = "/bench.Floor/Meet"
_HELLO = bytes(100)  # about a registration, and about an answer to it
_ANSWER = bytes(100)
_POLL_INTERVAL = 0.001  # seconds; a channel whose connection was refused does nothing for 100 ms


def meet(assignment: Assignment, host: HostPipe) -> None:
    """Take part in the meeting, report `returned`, and wait for the order to leave."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run((_serve if assignment.client_id == 0 else _join)(assignment, host))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """That of bringup's own loop: uvloop's, where there is one."""
    return importlib.import_module("uvloop").new_event_loop if importlib.util.find_spec("uvloop") else None


async def _serve(assignment: Assignment, host: HostPipe) -> None:
    grpc = importlib.import_module("grpc")
    missing = assignment.num_clients - 1
    complete = asyncio.Event()

    async def answer(requests: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
        nonlocal missing
        await anext(requests)
        missing -= 1
        if missing == 0:
            complete.set()
        await complete.wait()
        yield _ANSWER
        await anext(requests, None)

    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    service, _, method = _METHOD.strip("/").partition("/")
    handlers = {method: grpc.stream_stream_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, handlers)])
    server.add_insecure_port(assignment.jobs[0])
    await server.start()
    if missing > 0:
        await complete.wait()
    host.returned()
    await asyncio.to_thread(host.wait_for_order)
    await server.stop(None)


async def _join(assignment: Assignment, host: HostPipe) -> None:
    grpc = importlib.import_module("grpc")
    _wait_until_it_listens(assignment)
    async with grpc.aio.insecure_channel(assignment.jobs[0]) as channel:
        stream = channel.stream_stream(_METHOD)(wait_for_ready=True)
        await stream.write(_HELLO)
        await stream.read()
        host.returned()
        await asyncio.to_thread(host.wait_for_order)
        stream.cancel()


def _wait_until_it_listens(assignment: Assignment) -> None:
    name, _, port = assignment.jobs[0].rpartition(":")
    while True:
        with socket.socket() as one:
            if one.connect_ex((name, int(port))) == 0:
                return
        time.sleep(_POLL_INTERVAL)
