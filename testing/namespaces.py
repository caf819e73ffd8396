"""A network namespace for each client of a job, with cables to a common bridge, which can be cut."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self

from ..errors import BringupError, ConfigurationError
from ..processes.helper import HelperEndedError, HelperProcess
from . import enter_namespace

Direction = Literal["in", "out", "both"]
"""The dropped packets: those to a client, from it, or all."""

_DIRECTIONS: dict[Direction, tuple[str, ...]] = {"in": ("in",), "out": ("out",), "both": ("in", "out")}


class NamespacesUnavailableError(BringupError):
    """This machine or user may make no network namespaces; the message has the refused operation."""


class NamespaceNetwork:
    """Network namespaces for the clients of one job: a context manager that leaves none behind.

    They are held by a process of their own, which ends with this one, and by the clients in them.

    Args:
        num_clients: how many; client i has the address `10.77.0.(i + 1)`, up to 254, and no way out of the network.

    Raises:
        NamespacesUnavailableError: there can be none here.
    """

    def __init__(self, num_clients: int) -> None:
        self._lock = threading.Lock()
        self._cut: set[tuple[int, str]] = set()
        self._num_clients = num_clients
        self._host = HelperProcess(
            [sys.executable, "-P", "-m", f"{__package__}.namespace_host", str(num_clients)],
        )
        try:
            self._places = _checked(self._host.answer)
        except BaseException:
            self.close()
            raise

    def prefix(self, client_id: int) -> list[str]:
        """Return the prefix of a command that runs it in the namespaces of a client."""
        return [sys.executable, "-I", "-S", enter_namespace.__file__, *self.paths(client_id)]

    def paths(self, client_id: int) -> tuple[str, str]:
        """Return the paths of a client's namespaces, as `enter_both` takes them."""
        return self._places["user"] or "-", self._places["networks"][client_id]

    def cut(self, client_id: int, direction: Direction) -> None:
        """Drop a client's packets from now on, without an error on either side."""
        self._set(client_id, direction, cut=True)

    def heal(self, client_id: int, direction: Direction) -> None:
        """Deliver the packets of a client again; dropped ones stay lost."""
        self._set(client_id, direction, cut=False)

    def close(self) -> None:
        """Release the namespaces; the kernel removes each after the last process in it has ended."""
        self._host.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _set(self, client_id: int, direction: Direction, *, cut: bool) -> None:
        if direction not in _DIRECTIONS:
            raise ConfigurationError(f"direction={direction!r} of a cut is not one of {', '.join(_DIRECTIONS)}")
        if client_id not in range(self._num_clients):
            raise ConfigurationError(f"there is no client {client_id} to cut: the job has {self._num_clients}")
        with self._lock:
            for one in _DIRECTIONS[direction]:
                if ((client_id, one) in self._cut) is not cut:
                    _checked(partial(self._host.ask, ["cut" if cut else "heal", client_id, one]))
                    (self._cut.add if cut else self._cut.discard)((client_id, one))


def _checked(ask: Callable[[], Any]) -> dict[str, Any]:
    """Return an answer of the host that is no error."""
    try:
        answer = ask()
    except HelperEndedError as ended:
        answer = {"error": f"their host {ended}"}
    if "error" in answer:
        raise NamespacesUnavailableError(
            f"no network namespaces for the clients of a job: {answer['error']}. They take root's CAP_SYS_ADMIN, "
            "or unprivileged user namespaces (sysctl user.max_net_namespaces, user.max_user_namespaces), and veth, "
            "bridge and blackhole queues in the kernel."
        )
    return dict(answer)


def why_unavailable() -> str | None:
    """Return why there can be no network namespaces here, or `None` where there can."""
    try:
        with NamespaceNetwork(1) as network:
            network.cut(0, "both")
    except NamespacesUnavailableError as error:
        return str(error)
    return None
