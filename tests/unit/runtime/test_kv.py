"""Time-outs and errors of `KeyValueStore.get` where the services answer late or never."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from bringup.errors import KeyNotFoundError, KeyTimeoutError
from bringup.runtime.kv import KeyValueStore
from bringup.transport.wire.services import GetKey, ServiceReply, ServiceRequest, Value


class Services:
    """Answers the first calls with what it was given, and no other."""

    def __init__(self, *values: bytes | None) -> None:
        self.values = list(values)
        self.asked: list[GetKey] = []

    async def call(self, make: Callable[[int], ServiceRequest]) -> ServiceReply:
        request = make(len(self.asked) + 1)
        assert isinstance(request, GetKey)
        self.asked.append(request)
        if not self.values:
            await asyncio.Event().wait()
        return Value(request.ticket, self.values.pop(0))


async def get(services: Any, timeout: float | None) -> bytes:
    store = KeyValueStore(services, contextlib.nullcontext)
    return await store.get("a", timeout=timeout)


async def test_the_first_look_is_within_the_time_out() -> None:
    services = Services()
    with pytest.raises(KeyNotFoundError, match=r"client 0.*did not answer within timeout=0\.01 s.*may be set or not"):
        await get(services, 0.01)
    assert [request.wait for request in services.asked] == [False]


async def test_what_is_known_to_be_unset_is_said_to_be() -> None:
    services = Services(None)
    with pytest.raises(KeyNotFoundError, match=r"'a' was not set within timeout=0\.01 s"):
        await get(services, 0.01)
    assert [request.wait for request in services.asked] == [False, True]


async def test_no_time_at_all_is_one_look() -> None:
    services = Services(None)
    with pytest.raises(KeyNotFoundError, match="'a' was not set within timeout=0 s"):
        await get(services, 0)
    assert [request.wait for request in services.asked] == [False]
    assert await get(Services(b"1"), 0) == b"1"


@pytest.mark.parametrize("services", [Services(), Services(None)])
async def test_a_get_that_waited_in_vain_is_a_time_out(services: Services) -> None:
    with pytest.raises(TimeoutError) as raised:
        await get(services, 0.01)
    assert type(raised.value) is KeyTimeoutError
    assert isinstance(raised.value, KeyNotFoundError | KeyError)
    assert str(raised.value).startswith("key 'a'")


@pytest.mark.parametrize("timeout", [None, 10, float("inf")])
async def test_what_comes_in_time_is_returned(timeout: float | None) -> None:
    assert await get(Services(b"1"), timeout) == b"1"
    assert await get(Services(None, b"2"), timeout) == b"2"
