"""The decisions of bringup, pure: no socket, clock, task, thread or global randomness.

Each machine that lives in time has one contract::

    handle(event, now) -> list of effects    # a message, a result, a wish of the user
    deadline() -> float | None               # the earliest time at which it must be woken
    wake(now) -> list of effects             # what falls due
"""
