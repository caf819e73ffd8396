"""Event loops that come and go, and what they leave of their calls to the services."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from bringup.errors import BringupError, PeerFailedError
from bringup.runtime.client.service_client import ServiceClient, barrier_request
from bringup.runtime.drivers.service_transport import LocalRoute, RemoteRoute, Route
from bringup.runtime.machines.failure_errors import REFUSAL_ERRORS
from bringup.transport.ports import ServiceLink, ServiceReceiver
from bringup.transport.wire.services import Done, EndOther, ListLive, Refusal, ServiceReply, ServiceRequest


class FakeRoute:
    """Answers all but barriers at once."""

    def __init__(self, deliver: Callable[[ServiceReply], None], log: list[str], number: int) -> None:
        self.deliver = deliver
        self.log = log
        self.name = f"route {number}"

    def send(self, request: ServiceRequest) -> None:
        self.log.append(f"{self.name} sends {type(request).__name__}")
        if isinstance(request, ListLive):
            self.deliver(Done(request.ticket))

    async def drained(self) -> None:
        pass

    def close(self) -> None:
        self.log.append(f"{self.name} closes")

    def end_from(self, other: Route) -> None:
        assert isinstance(other, FakeRoute)
        self.log.append(f"{self.name} is ended by {other.name}")


def client() -> tuple[ServiceClient, list[str]]:
    log: list[str] = []
    made: list[FakeRoute] = []

    def make_route(deliver: Callable[[ServiceReply], None]) -> FakeRoute:
        made.append(FakeRoute(deliver, log, len(made) + 1))
        return made[-1]

    return ServiceClient(make_route, str), log


def leave_a_barrier_behind(services: ServiceClient) -> None:
    """As programs do that close their loop themselves: nothing tells its asynchronous generators."""
    loop = asyncio.new_event_loop()

    async def main() -> None:
        pending = asyncio.ensure_future(services.call(barrier_request("b", None, None)))
        await services.call(ListLive)
        pending.add_done_callback(lambda _: None)

    loop.run_until_complete(main())
    loop.close()


def test_what_a_closed_loop_has_left_is_ended_before_the_next_call() -> None:
    services, log = client()
    leave_a_barrier_behind(services)
    del log[:]
    asyncio.run(services.call(ListLive))  # type: ignore[arg-type]
    assert log == ["route 1 is ended by route 2", "route 2 sends ListLive", "route 2 closes"]


async def test_a_loop_that_has_called_before_ends_it_too() -> None:
    services, log = client()
    await services.call(ListLive)
    await asyncio.to_thread(leave_a_barrier_behind, services)
    del log[:]
    await services.call(ListLive)
    assert log == ["route 2 is ended by route 1", "route 1 sends ListLive"]


async def test_it_is_ended_where_nobody_calls_again() -> None:
    services, log = client()
    ended = asyncio.Event()
    watching = asyncio.ensure_future(services.watch_loops(0.001))
    await asyncio.to_thread(leave_a_barrier_behind, services)
    while "route 1 is ended by route 2" not in log:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.001)
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    ended.set()


async def test_a_remote_channel_is_named_over_another() -> None:
    async def connect(receiver: ServiceReceiver) -> ServiceLink:
        raise AssertionError("it has nothing to send")

    route, log = RemoteRoute(connect, lambda _: None), []

    class Other(FakeRoute):
        def send(self, request: ServiceRequest) -> None:
            log.append(request)

    route.end_from(Other(lambda _: None, [], 2))
    assert log == [EndOther(0, route._number)]


async def test_a_local_session_is_ended_before_the_next_request_of_who_ends_it() -> None:
    """Also where the one that ends it is on the loop of the services, and calls them without a hop."""

    class Server:
        def __init__(self) -> None:
            self.log: list[str] = []
            self.numbers = 0

        def open_session(self, reply: object) -> int:
            self.numbers += 1
            return self.numbers

        def handle(self, session: int, client_id: int, request: ServiceRequest) -> None:
            self.log.append(f"session {session}: {type(request).__name__}")

        def close_session(self, session: int) -> None:
            self.log.append(f"session {session} is closed")

    server, loop = Server(), asyncio.get_running_loop()

    async def make() -> LocalRoute:
        return LocalRoute(server, loop, 0, lambda _: None)  # type: ignore[arg-type]

    gone = await asyncio.to_thread(lambda: asyncio.run(make()))
    own = await make()
    gone.end_from(own)
    own.send(ListLive(1))
    assert server.log == ["session 1 is closed", "session 2: ListLive"]


@pytest.mark.parametrize("name", REFUSAL_ERRORS)
def test_a_refusal_is_raised_as_the_error_that_it_names(name: str) -> None:
    services, _ = client()
    error = services.refused(Refusal(1, name, "text\x1b", (4, 4)))
    assert type(error) is REFUSAL_ERRORS[name]
    assert str(error) == r"text\x1b"
    if isinstance(error, PeerFailedError):
        assert (error.client_id, error.address) == (4, "4")


@pytest.mark.parametrize("name", ["", "Mapping", "BringupError", "__name__", "annotations", "SystemExit", "Odd\nError"])
def test_what_names_no_error_of_a_refusal_is_looked_up_nowhere(name: str) -> None:
    services, _ = client()
    error = services.refused(Refusal(1, name, "text"))
    assert type(error) is BringupError
    assert str(error).endswith(": text")
    assert str(error).isprintable()
