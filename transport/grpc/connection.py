"""Sessions over gRPC: one bidirectional stream for each client, to the coordinator on client 0's job address."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

from ...errors import AuthenticationError, ConfigurationError
from ..addresses import Address
from ..attempts import Goal, Trouble, TroubleKind
from ..credentials import INSECURE, Credentials
from ..crowds import connections_max, crowd_timeout
from ..dial import DialError, open_any, reach
from ..names import Endpoint, Names
from ..ports import Connection, ConnectionClosedError, DialReport
from ..security.terms import RefusedError
from ..tcp.interfaces import check_free
from ..wire.control import CLIENT_MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX, decode, encode
from ..wire.form import MalformedMessageError
from ..wire.messages import Message
from .settings import grpc

_log = logging.getLogger("bringup")

_PATH = "/bringup.Coordinator/Session"
_CLOSE_TIMEOUT = 1.0
"""Seconds for the other side to end its half: `Connection.close` promises to return within them."""

_HANDSHAKE_TIMEOUT = 5.0
"""Seconds for gRPC's first frames, of either side, in a crowd of one. The kernel accepts connections for a stopped
process, which never sends them."""

_REFUSALS_INTERVAL = 60.0
"""Seconds between two lines of the log about refused certificates: strangers may come by thousands."""

_STOP_GRACE = 0.5
"""Seconds in which calls that run may end in order, before gRPC cancels them."""

_FAILURES = (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError)

_COMMON_OPTIONS: tuple[tuple[str, int | str], ...] = (
    # A proxy meant for the web must not see, nor break, the traffic between peers.
    ("grpc.enable_http_proxy", 0),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.enable_retries", 0),
    ("grpc.max_metadata_size", 16 * 1024),
    # The probe is a message of its own beside each that comes alone, a third of the cost of a heartbeat. It tells how
    # much fits into the network, which small messages need not know.
    ("grpc.http2.bdp_probe", 0),
)
_CHANNEL_OPTIONS = (
    *_COMMON_OPTIONS,
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    # The channel only ever connects to an endpoint that has just accepted a connection.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Channels to one address share connections by default: two peers of one process must not.
    ("grpc.use_local_subchannel_pool", 1),
)
_SERVER_OPTIONS = (
    *_COMMON_OPTIONS,
    # Two jobs on one port would each get some of the other's clients.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", CLIENT_MESSAGE_BYTES_MAX),
    # Above its default of 1,000 the core answers CANCELLED at random to clients that arrive together.
    ("grpc.server.max_pending_requests", 1_000_000),
    ("grpc.server.max_pending_requests_hard_limit", 1_000_000),
)


class _ServerConnection:
    def __init__(self, context: grpc.aio.ServicerContext[bytes, bytes], certified_id: int | None) -> None:
        self._context = context
        self.certified_id = certified_id
        self._ended: str | None = None
        self._first: asyncio.Future[None] | None = None

    async def send(self, message: Message) -> None:
        if self._ended is not None:
            raise ConnectionClosedError(self._ended)
        try:
            if self._first is not None:
                return await self._context.write(encode(message))
            # gRPC never ends a stream whose first write was cancelled half-way: see `close`.
            self._first = asyncio.ensure_future(self._context.write(encode(message)))
            return await asyncio.shield(self._first)
        except _FAILURES as error:
            raise ConnectionClosedError(f"the stream broke: {_describe(error)}") from None

    async def receive(self) -> Message:
        try:
            data: Any = await self._context.read()
        except _FAILURES as error:
            raise ConnectionClosedError(f"the stream broke: {_describe(error)}") from None
        except asyncio.CancelledError:
            _reraise_own_cancellation()
            raise ConnectionClosedError("the stream broke") from None
        if data is grpc.aio.EOF:
            raise ConnectionClosedError("the client closed its connection")
        return _decode(data)

    async def close(self) -> None:
        # The stream ends when the handler returns; until then nothing more is sent on it.
        self._ended = self._ended or "the coordinator closed the connection"
        if (first := self._first) is not None:
            await asyncio.wait([first], timeout=_CLOSE_TIMEOUT)
            if not first.cancel() and not first.cancelled():
                first.exception()  # its sender may have been cancelled, and then nobody else asks for it


class _Session(grpc.RpcMethodHandler):
    """The one method. gRPC's own function that makes one loads a module first, as the coordinator is waited for."""

    request_streaming = response_streaming = True
    request_deserializer = response_serializer = None
    unary_unary = unary_stream = stream_unary = None

    def __init__(self, handle: Callable[..., Awaitable[None]]) -> None:
        self.stream_stream = handle


class _Service(grpc.GenericRpcHandler):
    def __init__(self, handle: Callable[..., Awaitable[None]]) -> None:
        self._session = _Session(handle)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> _Session | None:
        return self._session if handler_call_details.method == _PATH else None


class GrpcServer:
    """The coordinator's gRPC server.

    Args:
        on_connection: see `Network.serve_coordinator`.
        num_clients: of the job, which may all come in the same moment.
    """

    def __init__(self, on_connection: Callable[[Connection], Awaitable[None]], num_clients: int = 1) -> None:
        self._on_connection = on_connection
        self._num_clients = num_clients
        self._credentials = INSECURE
        self._server: grpc.aio.Server | None = None
        self._handlers: set[asyncio.Task[Any]] = set()
        self._num_refused = 0
        self._refusals_said_at = -math.inf

    async def listen(self, hosts: list[str], port: int, credentials: Credentials) -> None:
        """Listen on `port` of each of `hosts`.

        Raises:
            ConfigurationError: the port is taken or the host is not of this machine; names both.
        """
        endpoints = check_free(hosts, port, "the coordinator")
        self._credentials = credentials
        handshake_timeout = round(1000 * crowd_timeout(_HANDSHAKE_TIMEOUT, self._num_clients))
        server = grpc.aio.server(
            options=[
                *_SERVER_OPTIONS,
                ("grpc.server_handshake_timeout_ms", handshake_timeout),
                # It hangs up on others at once; without a bound, strangers could use up all descriptors here.
                ("grpc.max_allowed_incoming_connections", connections_max(self._num_clients)),
            ]
        )
        server.add_generic_rpc_handlers((_Service(self._handle),))
        failure = self._bind(server, endpoints, credentials)
        self._server = server
        # A server that was bound must be started, to its end, before it can give its port back.
        await _to_its_end(server.start())
        if failure is not None:
            await self.close()
            raise failure

    def _bind(
        self, server: grpc.aio.Server, endpoints: list[Endpoint], credentials: Credentials
    ) -> ConfigurationError | None:
        for endpoint in endpoints:
            try:
                credentials.add_port(server, str(endpoint))
            except RuntimeError as error:
                return _refused(endpoint, error)
        return None

    async def close(self) -> None:
        """See `Server.close`."""
        server, self._server = self._server, None
        if server is not None:
            await _to_its_end(self._stop(server))

    async def _stop(self, server: grpc.aio.Server) -> None:
        await server.stop(_STOP_GRACE)
        # gRPC does not wait for the last steps of handlers that it ends.
        if self._handlers:
            await asyncio.wait(self._handlers, timeout=_CLOSE_TIMEOUT)

    async def _handle(self, _requests: object, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        try:
            certified_id = self._credentials.caller(context.auth_context())
        except RefusedError as error:
            self._say_refused(error)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
        connection = _ServerConnection(context, certified_id)
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        task.add_done_callback(self._handlers.discard)
        try:
            await self._on_connection(connection)
        except Exception:  # noqa: BLE001 - gRPC would send its text to the client
            _log.exception("a connection of the coordinator failed")
            await context.abort(grpc.StatusCode.INTERNAL, "internal error of the coordinator")
        finally:
            await connection.close()

    def _say_refused(self, error: RefusedError) -> None:
        self._num_refused += 1
        if time.monotonic() - self._refusals_said_at >= _REFUSALS_INTERVAL:
            self._refusals_said_at = time.monotonic()
            _log.warning("the coordinator has refused %d connections, this one as %s", self._num_refused, error)


class _ClientConnection:
    certified_id = None  # the coordinator's name was part of the handshake

    def __init__(self, address: Address, channel: grpc.aio.Channel, call: Any) -> None:
        self._address = address
        self._channel = channel
        self._call = call
        self._closed = False

    async def send(self, message: Message) -> None:
        try:
            await self._call.write(encode(message))
        except _FAILURES as error:
            raise await self._end(error) from None

    async def receive(self) -> Message:
        try:
            data = await self._call.read()
        except _FAILURES as error:
            raise await self._end(error) from None
        except asyncio.CancelledError:
            _reraise_own_cancellation()
            raise ConnectionClosedError("the connection was closed") from None
        if data is grpc.aio.EOF:
            raise await self._end(None)
        return _decode(data)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await self._call.done_writing()
                await self._call.code()
        except TimeoutError:
            self._call.cancel()  # the coordinator is stuck
        except _FAILURES:
            pass  # it has ended already
        finally:
            await _to_its_end(self._channel.close())

    async def _end(self, error: Exception | None) -> ConnectionClosedError | AuthenticationError:
        """Return how the call ended; `error` may come a little before the coordinator's own word."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await self._call.code()
        if not self._call.done():
            return ConnectionClosedError(
                _describe(error) if error is not None else "the coordinator ended the connection"
            )
        code = await self._call.code()
        if code is grpc.StatusCode.OK:
            return ConnectionClosedError("the coordinator ended the connection")
        if code is grpc.StatusCode.UNAUTHENTICATED:
            return AuthenticationError(
                f"the coordinator on {self._address} refused this client: {await self._call.details()}"
            )
        return ConnectionClosedError(
            f"the connection to the coordinator broke: {await self._call.details() or code.name}"
        )


def _refused(endpoint: Endpoint, error: RuntimeError) -> ConfigurationError:
    """Return the reason why gRPC could not bind an endpoint that was free a moment ago, from the kernel."""
    try:
        check_free([endpoint.host], endpoint.port, "the coordinator")
    except ConfigurationError as taken:
        return taken
    return ConfigurationError(f"the coordinator cannot listen on {endpoint}: {error}")


async def open_connection(
    names: Names, address: Address, credentials: Credentials, report: DialReport, *, expected: bool, num_clients: int
) -> tuple[Connection, str]:
    """See `Network.connect_coordinator`.

    The wait for a coordinator that is not up yet is spent on plain TCP connects: gRPC's own back-off would sleep
    through its start for up to a second or more.
    """
    goal = Goal.SESSION if expected else Goal.COORDINATOR
    try:
        return await reach(
            goal,
            lambda: _attempt(names, address, credentials, crowd_timeout(_HANDSHAKE_TIMEOUT, num_clients)),
            lambda trouble: report(trouble.text),
            num_clients,
        )
    except DialError as error:
        if error.trouble.kind is TroubleKind.UNTRUSTED:
            raise AuthenticationError(f"the coordinator on {address} is not trusted: {error}") from None
        raise ConnectionClosedError(f"{address}: {error}") from None


async def _attempt(names: Names, address: Address, credentials: Credentials, timeout: float) -> tuple[Connection, str]:
    sock, endpoint = await open_any(names, address)
    with sock:
        seen_from = str(sock.getsockname()[0])
    if Address(seen_from, 1).is_loopback and not address.is_loopback:
        # It is on the coordinator's host, whose name means loopback there, as Debian's /etc/hosts has it: to clients of
        # other hosts that address would be their own.
        seen_from = address.host
    family = "ipv6" if ":" in endpoint.host else "ipv4"
    if refusal := await credentials.refusal_at(endpoint, address, is_needed=False):
        raise DialError(Trouble(TroubleKind.UNTRUSTED, refusal))
    channel = credentials.open_channel(f"{family}:{endpoint}", _CHANNEL_OPTIONS, address)
    call: Any = channel.stream_stream(_PATH)()
    try:
        async with asyncio.timeout(timeout):
            await call.wait_for_connection()
    except BaseException as error:
        await _to_its_end(channel.close())
        if isinstance(error, TimeoutError):
            said = f"it accepts connections, and says nothing within {timeout:g} s"
            raise DialError(Trouble(TroubleKind.UNANSWERED, said)) from None
        if isinstance(error, _FAILURES):
            if refusal := await credentials.refusal_at(endpoint, address, is_needed=True):
                raise DialError(Trouble(TroubleKind.UNTRUSTED, refusal)) from None
            said = f"whoever listens there does not speak this protocol: {_describe(error)}"
            raise DialError(Trouble(TroubleKind.BROKEN, said)) from None
        raise
    names.worked(address, endpoint)
    return _ClientConnection(address, channel, call), seen_from


async def _to_its_end(awaitable: Awaitable[Any]) -> None:
    """Await a call of gRPC that breaks when cancelled: it finishes first, then the cancellation goes on."""
    task = asyncio.ensure_future(awaitable)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _reraise_own_cancellation() -> None:
    """Raise if this task was cancelled: gRPC shows the cancellation of its own call in the same way."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _decode(data: bytes) -> Message:
    try:
        return decode(data)
    except MalformedMessageError as error:
        raise ConnectionClosedError(f"the other side does not speak this protocol: {error}") from None


def _describe(error: Exception | None) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return error.details() or error.code().name
    return str(error) or type(error).__name__
