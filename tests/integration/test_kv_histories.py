"""The key-value store between real processes is linearizable, also while links break and clients are killed."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bringup.testing.job import LocalJob

from ..lib.kv_journals import history_of
from ..lib.linearizability import Call, CompareAndSet, History, Increment, Set, TryGet, Violation, check

N = 4
CALLS = 200
"""Of each worker of each client, of which there are three, where all live; else they go on until the job has failed."""

BUSY_AT = 40
FOR_EVER = 100_000

FOLDER = Path(__file__).parent
STORES = FOLDER.parent / "lib/broken_stores.py"
KILLED = -9


def job_of_callers(folder: Path, seed: str, calls: int, store: str = "") -> LocalJob:
    program = [sys.executable, str(FOLDER / "kv_history_client.py"), seed, str(calls), str(BUSY_AT)]
    arguments = [str(folder / "{client_id}.journal"), *([f"{STORES}:{store}"] if store else [])]
    return LocalJob(N, command=program + arguments, fork=True)


def history_in(folder: Path) -> History:
    journals = sorted(folder.glob("*.journal"))
    assert len(journals) == N
    return history_of(journals)


def history_of_a_job(folder: Path, seed: str, store: str = "") -> History:
    with job_of_callers(folder, seed, CALLS, store) as job:
        job.start()
        statuses = job.wait()
        assert statuses == dict.fromkeys(range(N), 0), [client.describe() for client in job.clients.values()]
    return history_in(folder)


def ended(history: History) -> list[Call]:
    return [call for call in history.calls if call.ended < 2**63]


def concurrent(history: History) -> int:
    """Return how many calls of those that ended began while one of another client was under way."""
    last: dict[object, int] = {}
    count = 0
    for call in ended(history):
        count += any(until > call.began for client, until in last.items() if client != call.client)
        last[call.client] = max(call.ended, last.get(call.client, 0))
    return count


@pytest.mark.parametrize("seed", ["one", "two"])
def test_all_that_clients_see_is_the_work_of_one_store(seed: str, tmp_path: Path) -> None:
    history = history_of_a_job(tmp_path, seed)
    assert len(history.calls) == N * 3 * CALLS
    assert len(ended(history)) > 0.9 * len(history.calls)
    assert concurrent(history) > 0.2 * len(history.calls)
    assert check(history) is None


@pytest.mark.parametrize("victims", [[2], [1, 3], [3, 2], [0]])
def test_it_is_while_clients_are_killed_too(victims: list[int], tmp_path: Path) -> None:
    """What was under way then may have had its effect or not, on the dead and on those whom the failure was told."""
    with job_of_callers(tmp_path, f"killed {victims}", FOR_EVER) as job:
        job.start()
        for victim in victims:
            job.clients[victim].wait_for("busy")
        for victim in victims:
            job.clients[victim].kill()
        statuses = job.wait()
        assert statuses == {c: KILLED if c in victims else 0 for c in range(N)}, job.clients[0].describe()
        for client_id in set(range(N)) - set(victims):
            told = job.clients[client_id].wait_for("told:")
            assert any(f"client {victim} " in told for victim in victims), told
    history = history_in(tmp_path)
    assert len(ended(history)) > BUSY_AT * N
    assert len(ended(history)) < len(history.calls)
    assert check(history) is None


# That the check can fail, of such histories.


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> History:
    return history_of_a_job(tmp_path_factory.mktemp("sound"), "altered")


def with_a_number_that_is_wrong(calls: list[Call]) -> None:
    place = max(n for n, call in enumerate(calls) if isinstance(call.operation, Increment) and type(call.result) is int)
    calls[place] = dataclasses.replace(calls[place], result=10_000)


def with_a_value_that_nobody_wrote(calls: list[Call]) -> None:
    _, writer = a_read_and_its_write(calls)
    calls.remove(writer)


def with_a_value_before_it_was_written(calls: list[Call]) -> None:
    reader, _ = a_read_and_its_write(calls)
    calls.remove(reader)
    calls.insert(0, dataclasses.replace(reader, began=-2, ended=-1))


def with_a_value_after_it_was_overwritten(calls: list[Call]) -> None:
    """Of a key that is written over and over; the read is the last of all calls."""
    reader, _ = a_read_and_its_write(calls)
    end = max(call.ended for call in calls if call.ended < 2**63)
    after = Set(reader.operation.key, b"last of all", overwrite=True)
    calls.append(Call("x", after, end + 1, end + 2))
    calls.append(dataclasses.replace(reader, began=end + 3, ended=end + 4))


def a_read_and_its_write(calls: list[Call]) -> tuple[Call, Call]:
    """Return a call that has read a value, and the one that wrote it: no two write the same."""
    writers = {(call.operation.key, call.operation.value): call for call in calls if is_write(call)}  # type: ignore[union-attr]
    reads = (call for call in calls if isinstance(call.operation, TryGet) and call.ended < 2**63)
    return next((read, writers[wrote]) for read in reads if (wrote := (read.operation.key, read.result)) in writers)


def is_write(call: Call) -> bool:
    return isinstance(call.operation, Set | CompareAndSet)


@pytest.mark.parametrize(
    "alter",
    [
        with_a_number_that_is_wrong,
        with_a_value_that_nobody_wrote,
        with_a_value_before_it_was_written,
        with_a_value_after_it_was_overwritten,
    ],
)
def test_a_history_that_was_altered_is_found_out(alter: Callable[[list[Call]], None], sound: History) -> None:
    calls = list(sound.calls)
    assert check(History(calls)) is None
    alter(calls)
    assert isinstance(check(History(calls)), Violation)


@pytest.mark.parametrize("store", ["StaleStore", "DoublingStore", "ForgetfulStore", "TornStore"])
def test_a_broken_store_on_client_0_is_found_out(store: str, tmp_path: Path) -> None:
    assert isinstance(check(history_of_a_job(tmp_path, store, store)), Violation)
