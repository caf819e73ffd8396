"""A job of real client processes on this machine: starts, remote calls, kills, stops and cut networks."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from ..errors import ConfigurationError
from ..runtime.configuration.client_environment import client_environment
from ..runtime.configuration.security import SECURITY_VARIABLES
from ..runtime.configuration.user_token import user_token, user_token_path
from ..transport.tcp.interfaces import free_ports
from .namespace_host import address_of
from .namespaces import Direction, NamespaceNetwork
from .process import ANSWER_TIMEOUT
from .remote_calls import Call, LocalClient
from .starting import Starter

_NAMESPACE_PORT = 9000


class Cut(contextlib.AbstractContextManager["Cut"]):
    """A cut that is in force; as a context manager it heals at the end."""

    def __init__(self, job: LocalJob, client_id: int, direction: Direction) -> None:
        self._job = job
        self._client_id = client_id
        self._direction = direction

    def heal(self) -> None:
        """See `LocalJob.heal`."""
        self._job.heal(self._client_id, direction=self._direction)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.heal()


class LocalJob:
    """The clients of one job, as processes on this machine; a context manager that leaves none behind.

    Args:
        num_clients: how many.
        command: the program that each client runs, which finds its place in the job in the environment; `None` for one
            that makes the calls it is told to.
        host: the loopback address that they use.
        namespaces: give each client a network namespace of its own, so that it can be cut off. The clients then reach
            each other, and nothing else. As such a job is not on loopback, they are told of the token of this user,
            by `BRINGUP_TOKEN_FILE`, unless `environment` has another, or certificates, or `BRINGUP_INSECURE`.
        environment: set for all of them, beside what says who they are. Of this process's own environment they get
            what is neither bringup's nor says who they are.
        cwd: the folder to run `command` in, or `None` for this process's own.
        fork: fork clients from a process that has imported bringup, which takes a tenth of the time of a start: `None`
            for those without a command alone, which is right for all tests but those of what programs import. It is
            done on Linux, for commands `[sys.executable, FILE, ...]` and `[sys.executable, "-c", CODE, ...]`; the
            others are started as ever.

    Attributes:
        jobs: the `host:port` of each client.
        clients: those that were started, by id.
    """

    def __init__(
        self,
        num_clients: int,
        *,
        command: Sequence[str] | None = None,
        host: str = "127.0.0.1",
        namespaces: bool = False,
        environment: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        fork: bool | None = None,
    ) -> None:
        self.num_clients = num_clients
        self.jobs = _namespace_addresses(num_clients) if namespaces else _addresses(num_clients, host)
        self.clients: dict[int, LocalClient] = {}
        self._command = command
        self._environment = dict(environment or {})
        self._cwd = None if cwd is None else os.fspath(cwd)
        self._retired: list[LocalClient] = []
        self._with_namespaces = namespaces
        self._network: NamespaceNetwork | None = None
        self._fork = fork
        self._starter = Starter()

    # Its processes.

    def start(
        self,
        client_ids: Iterable[int] | None = None,
        *,
        command: Sequence[str] | None = None,
        fork: bool | None = None,
        **environment: str,
    ) -> list[LocalClient]:
        """Start the processes of some clients, or of all; a client that ran before is replaced by a new one.

        `command`, `fork` and `environment` are for these alone.

        Raises:
            NamespacesUnavailableError: the job was to have namespaces, and there can be none here.
        """
        if self._with_namespaces and self._network is None:
            self._network = NamespaceNetwork(self.num_clients)
        program = command or self._command
        wanted = self._fork if fork is None else fork
        started = []
        for client_id in range(self.num_clients) if client_ids is None else client_ids:
            if client_id in self.clients:
                self._retired.append(self.clients[client_id])
            process, forget = self._starter.start(
                program,
                {**self._identity(client_id, program), **self._secured({**self._environment, **environment})},
                cwd=self._cwd if program else None,
                forks=program is None if wanted is None else wanted,
                network=self._network,
                client_id=client_id,
            )
            client = self.clients[client_id] = LocalClient(client_id, program, process, forget)
            started.append(client)
        return started

    def wait(self, client_ids: Iterable[int] | None = None, timeout: float = ANSWER_TIMEOUT) -> dict[int, int]:
        """Wait for the processes of some clients, or of all, to end by themselves; returns their exit statuses.

        Raises:
            AssertionError: one did not within `timeout` seconds; says what it has written.
        """
        deadline = time.monotonic() + timeout
        chosen = list(self.clients if client_ids is None else client_ids)
        return {client_id: self.clients[client_id].wait(max(0.0, deadline - time.monotonic())) for client_id in chosen}

    # Its network.

    def cut(self, client_id: int, *, direction: Direction = "both") -> Cut:
        """Drop a client's packets from now on, without an error on either side; only with `namespaces`.

        Args:
            client_id: whose.
            direction: `in` for what it is sent, `out` for what it sends.

        Returns:
            What heals it at the end of a `with`; nothing need be done with it.

        Raises:
            ConfigurationError: the job has no namespaces or no such client, or there is no such direction.
        """
        self._demand_network().cut(client_id, direction)
        return Cut(self, client_id, direction)

    def heal(self, client_id: int, *, direction: Direction = "both") -> None:
        """Deliver the packets of a client again. TCP retransmits dropped ones after its own delays."""
        self._demand_network().heal(client_id, direction)

    # Calls that it makes, without a command.

    def call(self, name: str, client_ids: Iterable[int] | None = None, /, **arguments: Any) -> list[Call]:
        """Start a call in some clients, or in all that were started, at the same time."""
        chosen = self.clients if client_ids is None else client_ids
        return [self.clients[client_id].call(name, **arguments) for client_id in chosen]

    def initialize(self, **arguments: Any) -> list[dict[str, Any]]:
        """Start the clients that do not run, bring all up, and return the facts of each, in client order."""
        self.start([client_id for client_id in range(self.num_clients) if client_id not in self.clients])
        calls = self.call("initialize", range(self.num_clients), **arguments)
        return [call.value() for call in calls]

    def resources(self) -> list[dict[str, int]]:
        """Return the threads, open files and tasks that each client has when it is in no job, in client order.

        Each client brings itself up alone once, since what is loaded then starts threads that stay.
        """
        for name, arguments in (("initialize", {"jobs": "127.0.0.1:1", "client_id": 0}), ("shutdown", {})):
            for call in self.call(name, range(self.num_clients), **arguments):
                call.value()
        return [call.value() for call in self.call("resources", range(self.num_clients))]

    def resources_beyond(self, before: list[dict[str, int]]) -> list[dict[str, int]]:
        """Return the resources of each client in excess of `before`, after a grace period for their release."""
        calls = [self.clients[c].call("resources", expected=before[c]) for c in range(self.num_clients)]
        after = [call.value() for call in calls]
        return [
            {key: found[key] - old[key] for key in found if found[key] > old[key]}
            for found, old in zip(after, before, strict=True)
        ]

    # Its end.

    def close(self) -> None:
        """End all processes, and remove their files and networks."""
        with contextlib.ExitStack() as closing:
            if self._network is not None:
                closing.callback(self._network.close)
            closing.callback(self._starter.close)
            for client in (*self.clients.values(), *self._retired):
                closing.callback(client.close)
        self._network = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _identity(self, client_id: int, program: Sequence[str] | None) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("BRINGUP_")}
        environment = client_environment(inherited, self.jobs, client_id)
        if program is None:
            # The addresses say how many, and tests of ours set others.
            del environment["BRINGUP_NUM_CLIENTS"]
        return environment

    def _secured(self, environment: dict[str, str]) -> dict[str, str]:
        """Add the token of this user where the clients would not use it by themselves."""
        if not self._with_namespaces or SECURITY_VARIABLES & set(environment):
            return environment
        user_token(os.environ)  # made here, as the clients may only read it
        return {"BRINGUP_TOKEN_FILE": str(user_token_path(os.environ)), **environment}

    def _demand_network(self) -> NamespaceNetwork:
        if not self._with_namespaces:
            raise ConfigurationError("this job has no links to cut: make it with LocalJob(..., namespaces=True)")
        if self._network is None:
            raise ConfigurationError("this job has no links yet: start its clients before you cut one off")
        return self._network


def _addresses(num_clients: int, host: str) -> tuple[str, ...]:
    shown = f"[{host}]" if ":" in host else host
    ports = free_ports(num_clients, "127.0.0.1" if host == "localhost" else host)
    return tuple(f"{shown}:{port}" for port in ports)


def _namespace_addresses(num_clients: int) -> tuple[str, ...]:
    return tuple(f"{address_of(client_id)}:{_NAMESPACE_PORT}" for client_id in range(num_clients))
