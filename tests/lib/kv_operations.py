"""Calls on the key-value store: random ones, their requests, and their results for the linearizability checker."""

from __future__ import annotations

import random
from collections.abc import Mapping

from bringup.transport.wire import services as sm

from .linearizability import (
    CompareAndSet,
    Delete,
    Get,
    Increment,
    List,
    Operation,
    Refused,
    Result,
    Set,
    TryGet,
)

KEYS = ["n", "n", "x", "x", "d/a", "d/b", "d/e/f", "w"]
"""Few, so that calls meet; `n` holds a number, and `w` is waited for."""


def draw_operation(chance: random.Random) -> Operation:
    """Return a call on one of a few keys."""
    key = chance.choice(KEYS)
    value = b"%d" % chance.randrange(4)
    choices: list[Operation] = [
        TryGet(key),
        Set(key, value),
        Set(key, value, overwrite=True),
        CompareAndSet(key, chance.choice([None, b"0", b"1"]), value),
        Increment(key),
        Delete(chance.choice([key, "d", "d/e"])),
        List("d"),
    ]
    if key == "n":
        choices = [Increment(key), Increment(key, -2), Increment(key, 0), TryGet(key), Delete(key)]
    if key == "w":
        choices = [Get(key), Get(key), Set(key, value), Delete(key)]
    return chance.choice(choices)


def request_of(ticket: int, operation: Operation) -> sm.ServiceRequest:
    """Return the request that a call is sent as."""
    match operation:
        case Get(key):
            return sm.GetKey(ticket, key, True)
        case TryGet(key):
            return sm.GetKey(ticket, key, False)
        case Set(key, value, overwrite):
            return sm.SetKey(ticket, f"/{key}", value, overwrite)
        case Increment(key, by):
            return sm.IncrementKey(ticket, key, by)
        case CompareAndSet(key, expected, value):
            return sm.CompareAndSet(ticket, key, expected, value)
        case Delete(key):
            return sm.DeleteKeys(ticket, key)
        case List(key):
            return sm.ListKeys(ticket, key)


def operation_of(request: sm.ServiceRequest) -> Operation | None:
    """Return the call that a request is; `None` where it is none on the store, or one without a result."""
    match request:
        case sm.GetKey(_, key, wait):
            return Get(key) if wait else TryGet(key)
        case sm.SetKey(_, key, value, overwrite):
            return Set(key.strip("/"), value, overwrite)
        case sm.IncrementKey(_, key, by):
            return Increment(key, by)
        case sm.CompareAndSet(_, key, expected, value):
            return CompareAndSet(key, expected, value)
        case sm.DeleteKeys(_, key):
            return Delete(key)
        case sm.ListKeys(_, prefix):
            return List(prefix)
    return None


def result_of(operation: Operation, reply: sm.ServiceReply, listed: Mapping[str, bytes]) -> Result:
    """Return the result of a call that ends with `reply`; `listed` is what its replies have listed in all."""
    match reply:
        case sm.Value():
            return reply.value
        case sm.Number():
            return reply.number == 1 if isinstance(operation, CompareAndSet) else reply.number
        case sm.Items():
            return dict(listed)
        case sm.Refusal():
            return Refused()
    return None
