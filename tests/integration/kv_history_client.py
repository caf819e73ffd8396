"""A client that calls the key-value store at random, and writes down when each call began and ended, and with what.

`python kv_history_client.py SEED CALLS BUSY_AT JOURNAL [STORE]` comes up, and lets three workers call at once: two
tasks of one event loop, and another loop in another thread, which has a link of its own. Links break now and then, and
some calls are given up. It writes `busy` when a worker has made BUSY_AT calls, and ends when each has made CALLS, or
once the job has failed. JOURNAL is the file to write to, with `{client_id}` in its name; STORE is `MODULE.py:CLASS`, a
store that client 0 is to have in place of the right one.

Times are those of CLOCK_MONOTONIC, which all processes of a machine share. A begin is written down before the call is
made, an end after it was: so no effect lies outside of what was written, however the process ends.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import runpy
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import bringup
from bringup.runtime.drivers.service_transport import RemoteRoute
from bringup.runtime.machines import service_machine as services

_PATIENCE = 30.0
WORKERS = 3
KEYS = ["n", "n", "x", "y", "d/a", "d/b", "d/e/f", "w"]

_Choice = tuple[str, list[Any]]
"""A call of the store by name, and its arguments, values as texts."""


class Journal:
    """What this process has done, line by line; used by all its threads."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._numbers = itertools.count()

    def began(self, choice: _Choice) -> int:
        number = next(self._numbers)
        self._write({"began": number, "at": time.monotonic_ns(), "call": choice[0], "arguments": choice[1]})
        return number

    def ended(self, number: int, **outcome: Any) -> None:
        self._write({"ended": number, "at": time.monotonic_ns(), **outcome})

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")


class Worker:
    """Makes one call after the other."""

    def __init__(self, system: bringup.System, journal: Journal, name: str) -> None:
        self._system = system
        self._journal = journal
        self._name = name
        self._chance = random.Random(name)
        self._seen: dict[str, str | None] = {}

    async def run(self, calls: int, busy_at: int) -> None:
        for number in range(calls):
            if number == busy_at:
                print("busy", flush=True)
            if self._chance.random() < 0.02:
                self._break_link()
            try:
                await self._call(self._choose(number))
            except bringup.PeerFailedError:
                return
            # The pace: other clients, and whoever is to kill one, get their turn.
            await asyncio.sleep(self._chance.random() * 0.0005)

    async def _call(self, choice: _Choice) -> None:
        number = self._journal.began(choice)
        patience = self._chance.random() * 0.002 if self._chance.random() < 0.05 else None
        try:
            async with asyncio.timeout(patience):
                result = await self._made(*choice)
        except (TimeoutError, bringup.KeyNotFoundError):
            return  # given up: whether it has had its effect, nobody knows
        except (bringup.KeyExistsError, bringup.ConfigurationError) as error:
            if choice[0] != ("Set" if isinstance(error, bringup.KeyExistsError) else "Increment"):
                raise
            self._journal.ended(number, refused=True)
            return
        self._journal.ended(number, result=_as_text(result))
        if choice[0] in ("Get", "TryGet"):
            self._seen[choice[1][0]] = _as_text(result)

    def _made(self, name: str, arguments: list[Any]) -> Awaitable[object]:
        kv, key = self._system.kv, arguments[0]
        match name, arguments[1:]:
            case "Get", []:
                return kv.get(key, timeout=0.02)
            case "Set", [value, overwrite]:
                return kv.set(key, value, overwrite=overwrite)
            case "CompareAndSet", [expected, value]:
                return kv.compare_and_set(key, expected, value)
            case "Increment", [by]:
                return kv.increment(key, by)
        calls: dict[str, Callable[[str], Awaitable[object]]] = {
            "TryGet": kv.try_get,
            "Delete": kv.delete,
            "List": kv.list,
        }
        return calls[name](key)

    def _choose(self, number: int) -> _Choice:
        """Return what to call next; no two calls set the same value."""
        chance = self._chance
        key, value = chance.choice(KEYS), f"{self._name}.{number}"
        choices: list[_Choice] = [
            ("TryGet", [key]),
            ("TryGet", [key]),
            ("Set", [key, value, False]),
            ("Set", [key, value, True]),
            ("CompareAndSet", [key, self._seen.get(key), value]),
            ("CompareAndSet", [key, self._seen.get(key), value]),
            ("Delete", [chance.choice([key, "d", "d/e"])]),
            ("List", ["d"]),
            ("Increment", [key, 1]),
        ]
        if key == "n":
            choices = [("Increment", [key, by]) for by in (1, 1, 1, -2, 0)] + [("TryGet", [key]), ("Delete", [key])]
        if key == "w":
            choices = [("Get", [key]), ("Get", [key]), ("Set", [key, value, False]), ("Delete", [key])]
        return chance.choice(choices)

    def _break_link(self) -> None:
        route = self._system._client.services.calls().route
        if isinstance(route, RemoteRoute) and route.link is not None:
            route.link._transport.abort()  # type: ignore[attr-defined]


def _as_text(result: object) -> Any:
    if isinstance(result, dict):
        return {key: value.decode() for key, value in result.items()}
    return result.decode() if isinstance(result, bytes) else result


async def main(seed: str, calls: int, busy_at: int, journal: str, store: str = "") -> None:
    if store:
        path, name = store.split(":")
        services.StoreMachine = runpy.run_path(path)[name]  # type: ignore[misc]
    try:
        async with bringup.initialize("SIM") as system:
            written = Journal(journal.format(client_id=system.client_id))
            workers = [Worker(system, written, f"{seed}.{system.client_id}.{number}") for number in range(WORKERS)]
            await system.barrier("begin", timeout=_PATIENCE)
            await asyncio.gather(
                *(worker.run(calls, busy_at) for worker in workers[1:]),
                asyncio.to_thread(asyncio.run, workers[0].run(calls, busy_at)),
            )
            await system.barrier("end", timeout=_PATIENCE)
    except bringup.PeerFailedError as error:
        print("told:", error, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]))
