"""The key-value store and barriers of a job, with the interface of jax's distributed client (`global_state.client`)."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import TypeVar

from ...errors import BarrierTimeoutError, KeyExistsError, KeyNotFoundError
from ...runtime.blocking import SyncKeyValueStore, SyncSystem
from ...runtime.client.service_client import barrier_request, name_of_set
from .errors import JaxRuntimeError, jax_errors

__all__ = ["DistributedRuntimeClient"]

T = TypeVar("T")


class DistributedRuntimeClient:
    """Has the interface of jaxlib's `DistributedRuntimeClient`. Its methods block; they may be called from any thread.

    Times are in milliseconds; one of 0 or less does not wait.

    Any method raises:
        JaxRuntimeError: what the original raises, with the same code in front of its text; moreover `UNAVAILABLE` once
            a client of the job has failed, where the original ends the process, `CANCELLED` once the system was shut
            down, and `FAILED_PRECONDITION` where the services are switched off.
        TypeError: an argument is of a type that the original does not take either.

    Args:
        system: the job.
    """

    def __init__(self, system: SyncSystem) -> None:
        self._system = system

    @property
    def _kv(self) -> SyncKeyValueStore:
        with jax_errors(refused="FAILED_PRECONDITION"):
            return self._system.kv

    # The key-value store.

    def key_value_set(self, key: str, value: str, allow_overwrite: bool = False) -> None:
        """Set a key to a text; `ALREADY_EXISTS` where it is set, and not to be overwritten."""
        self._set(key, _of_type(str, "value", value), allow_overwrite)

    def key_value_set_bytes(self, key: str, value: bytes, allow_overwrite: bool = False) -> None:
        """Set a key to bytes; see `key_value_set`."""
        self._set(key, _of_type(bytes, "value", value), allow_overwrite)

    def blocking_key_value_get(self, key: str, timeout_in_ms: int) -> str:
        """Return the text that a key holds, once there is one; `DEADLINE_EXCEEDED` where there is none in time.

        Raises:
            UnicodeDecodeError: it holds bytes that are no text.
        """
        return self.blocking_key_value_get_bytes(key, timeout_in_ms).decode()

    def blocking_key_value_get_bytes(self, key: str, timeout_in_ms: int) -> bytes:
        """Return the bytes of a key; see `blocking_key_value_get`."""
        seconds = _seconds(timeout_in_ms)
        with jax_errors():
            try:
                return self._kv.get(_of_type(str, "key", key), timeout=seconds)
            except KeyNotFoundError as error:
                raise JaxRuntimeError(
                    f"DEADLINE_EXCEEDED: GetKeyValue() timed out with key: {key} and duration: {timeout_in_ms}ms; "
                    "look at the client that is to set it"
                ) from error

    def key_value_try_get(self, key: str) -> str:
        """Return the text that a key holds now; `NOT_FOUND` where there is none.

        Raises:
            UnicodeDecodeError: it holds bytes that are no text.
        """
        return self.key_value_try_get_bytes(key).decode()

    def key_value_try_get_bytes(self, key: str) -> bytes:
        """Return the present bytes of a key; `NOT_FOUND` where there are none."""
        with jax_errors():
            value = self._kv.try_get(_of_type(str, "key", key))
            if value is None:
                missing = f"Config key {key} not found."
                raise JaxRuntimeError(f"NOT_FOUND: {missing}") from KeyNotFoundError(missing)
            return value

    def key_value_dir_get(self, key: str) -> list[tuple[str, str]]:
        """Return all keys below a directory, in full, with their texts, by key; none for the root, as in the original.

        Raises:
            UnicodeDecodeError: one holds bytes that are no text.
        """
        return [(full, value.decode()) for full, value in self.key_value_dir_get_bytes(key)]

    def key_value_dir_get_bytes(self, key: str) -> list[tuple[str, bytes]]:
        """Return all keys below a directory, in full, with their bytes; see `key_value_dir_get`."""
        with jax_errors():
            store = self._kv
            return list(store.list(key).items()) if _of_type(str, "key", key).strip("/") else []

    def key_value_increment(self, key: str, increment: int) -> int:
        """Add to a key that holds a whole number as text, and return the sum; one that is not set counts as 0.

        `FAILED_PRECONDITION` where it holds something else, or the sum has more than 64 bits.
        """
        with jax_errors(refused="FAILED_PRECONDITION"):
            return self._kv.increment(_of_type(str, "key", key), operator.index(increment))

    def key_value_delete(self, key: str) -> None:
        """Delete a key and everything below it; nothing happens where there is nothing."""
        with jax_errors():
            self._kv.delete(_of_type(str, "key", key))

    def _set(self, key: str, value: str | bytes, allow_overwrite: bool) -> None:
        with jax_errors():
            try:
                self._kv.set(_of_type(str, "key", key), value, overwrite=bool(allow_overwrite))
            except KeyExistsError as error:
                raise JaxRuntimeError(
                    f"ALREADY_EXISTS: key {key} already exists. It keeps its value: pass allow_overwrite=True, delete "
                    "it first, or use another key."
                ) from error

    # Barriers.

    def wait_at_barrier(self, barrier_id: str, timeout_in_ms: int, process_ids: Iterable[int] | None = None) -> None:
        """Wait until all processes, or some, have come to a barrier. Ids can be used again.

        `DEADLINE_EXCEEDED` for all who came where somebody did not come before the deadline of the first, which says
        who; `INVALID_ARGUMENT` where they do not agree on who takes part, or this process is not among them;
        `FAILED_PRECONDITION` where another thread of this process waits there.

        Args:
            barrier_id: its name.
            timeout_in_ms: the deadline, from now on.
            process_ids: who takes part, this process among them; `None` and an empty list are all.
        """
        ids = None if process_ids is None else list(process_ids) or None
        seconds = _seconds(timeout_in_ms)
        with jax_errors():
            barrier_request(_of_type(str, "barrier_id", barrier_id), ids, seconds)
        try:
            # The arguments are right: what is refused now has to do with what others did before.
            with jax_errors(refused="FAILED_PRECONDITION"):
                self._system.barrier(barrier_id, client_ids=ids, timeout=seconds)
        except JaxRuntimeError as error:
            if not isinstance(cause := error.__cause__, BarrierTimeoutError):
                raise
            size = self._system.num_clients if ids is None else len(ids)
            raise JaxRuntimeError(
                f"DEADLINE_EXCEEDED: Barrier timed out. Id: {barrier_id}. "
                f"# of tasks that reached the barrier: {size - len(cause.missing)}/{size}. {cause}"
            ) from cause

    def get_live_nodes(self, process_ids: Iterable[int]) -> dict[int, int]:
        """Wait until all of the given processes make this call, and return the incarnation of each.

        All get the same, or all `UNAVAILABLE`, as a job ends with any of its clients.

        Args:
            process_ids: which, this process among them; ids that the job does not have are dropped.
        """
        system = self._system
        ids = {each for given in process_ids if 0 <= (each := operator.index(given)) < system.num_clients}
        if system.client_id not in ids:
            raise JaxRuntimeError(
                f"INVALID_ARGUMENT: Requesting task {system.client_id} is not one of the tasks specified in a "
                f"GetAliveTasks request. It named {sorted(ids)}: pass this process's own id, too."
            )
        with jax_errors(refused="FAILED_PRECONDITION"):
            system.barrier(name_of_set("live_nodes", ids), client_ids=ids)
        return {member.client_id: member.incarnation for member in system.members if member.client_id in ids}


def _of_type(kind: type[T], name: str, value: object) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"{name} is a {type(value).__name__}, {str(value)[:80]!r}: give a {kind.__name__}")
    return value


def _seconds(timeout_in_ms: int) -> float:
    return max(0, operator.index(timeout_in_ms)) / 1000
