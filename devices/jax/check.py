"""A small computation with a known result, on all devices of this process at once, through jax."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..base import Health
from ..polling import wait_until

# Seconds without a gap in which a small computation gets its turn: a program that holds a device for longer hangs.
_STUCK_AFTER = 600.0

# Whole numbers so small that their products are exact, whatever precision a platform multiplies matrices in.
_SIZE = 16
_MODULUS = 5
_DIGITS = 12
_ADDED = 3


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check.

    Attributes:
        wrong: the devices whose result is wrong, as jax names them, with what is wrong.
        waiting: the devices that have no result yet.
        age: for how long they have had the computation, in seconds.
    """

    wrong: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    age: float = 0.0


def given_parts(num_devices: int) -> Any:
    """Return the input of each device: float32 `[num_devices, 16, 16]`.

    A device's part, and its result, differ from every other's, so that one which got another's result does not pass:
    the digits of the device's number are added to a row each.
    """
    import numpy as np

    pattern = np.arange(_SIZE * _SIZE).reshape(_SIZE, _SIZE) % _MODULUS
    numbers = np.arange(num_devices)[:, None] // _MODULUS ** np.arange(_DIGITS)
    parts = np.tile(pattern, (num_devices, 1, 1))
    parts[:, :_DIGITS] += (numbers % _MODULUS)[:, :, None]
    return parts.astype(np.float32)


class JaxCheck:
    """The compiled computation. It is constructed and run in one thread.

    A device that is busy with a program of the user's computes it later: a run that did not end in time is waited for
    by the next `run`, which starts no other.

    Args:
        jax: the module.
        devices: the jax devices; all of this process.
    """

    def __init__(self, jax: Any, devices: Sequence[Any]) -> None:
        import numpy as np

        self._np = np
        self._jax = jax
        mesh = jax.sharding.Mesh(np.array(devices, dtype=object), ("device",))
        self._sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("device"))
        self._given = given_parts(len(devices))
        self._expected = self._given @ self._given + _ADDED
        # The user's program may have set another for all.
        precision = jax.lax.Precision.HIGHEST
        self._compute = jax.jit(lambda values: jax.numpy.matmul(values, values, precision=precision) + _ADDED)
        self._interrupted = threading.Event()
        self._result: Any = None
        self._since = 0.0

    def run(self, timeout: float) -> CheckResult:
        """Compute and compare.

        Args:
            timeout: how long to wait for the devices, in seconds.

        Raises:
            Exception: whatever jax raises where a device fails.
        """
        try:
            # A guard that the user's program has set for all is meant for its own transfers.
            with self._jax.transfer_guard("allow"):
                return self._run(timeout)
        except BaseException:
            # What failed is not waited for again.
            self._result = None
            raise

    def interrupt(self) -> None:
        """End a wait of `run` early; called from any thread."""
        self._interrupted.set()

    def _run(self, timeout: float) -> CheckResult:
        if self._result is None:
            self._result = self._compute(self._jax.device_put(self._given, self._sharding))
            self._since = time.monotonic()
        parts = self._result.addressable_shards
        if not wait_until(lambda: all(part.data.is_ready() for part in parts), timeout, self._interrupted):
            waiting = tuple(str(part.device) for part in parts if not part.data.is_ready())
            return CheckResult(waiting=waiting, age=time.monotonic() - self._since)
        self._result = None
        return CheckResult(wrong=tuple(filter(None, (self._compared(part) for part in parts))))

    def _compared(self, part: Any) -> str:
        # Not asarray: users forbid implicit transfers to find slow ones.
        got, expected = self._jax.device_get(part.data), self._expected[part.index]
        if got.shape == expected.shape and (got == expected).all():
            return ""
        row = (
            tuple(int(index) for index in self._np.argwhere(got != expected)[0]) if got.shape == expected.shape else ()
        )
        return (
            f"{part.device} (element {list(row)}: {got[row]} instead of {expected[row]})" if row else str(part.device)
        )


def health_by(run: Callable[[float], CheckResult], timeout: float) -> Health:
    """Return the health of devices after a computation on them.

    A device that is busy is not ill: it gets to the computation later, and the next check looks at the result. Nor is
    one whose memory the user's program has used up.

    Args:
        run: computes; the `run` of a `JaxCheck`.
        timeout: how long to wait for the devices, in seconds.
    """
    try:
        result = run(timeout)
    except Exception as error:  # noqa: BLE001 - whatever jax raises, the devices do not compute
        text = " ".join(str(error).split()) or type(error).__name__
        return Health(ok="RESOURCE_EXHAUSTED" in text, detail=f"a computation failed: {text}")
    if result.wrong:
        names = ", ".join(result.wrong)
        return Health(ok=False, detail=f"a computation with a known result gave another one on {names}")
    if not result.waiting:
        return Health(ok=True)
    stuck = result.age >= _STUCK_AFTER
    verb = "have not come to" if stuck else "are busy, and have yet to come to"
    return Health(
        ok=not stuck, detail=f"{', '.join(result.waiting)} {verb} a small computation of {result.age:.0f} s ago"
    )
