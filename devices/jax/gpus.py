"""This client's share of the GPUs that jax uses, and their UUIDs."""

from __future__ import annotations

import ctypes
import importlib.util
import logging
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from ..base import BackendConfig
from ..gpu.visible_devices import VISIBLE_VARIABLE, is_own_choice
from ..selection import select_local_share

_LIBRARY = "libcuda.so.1"
_OPTION = "jax_cuda_visible_devices"
_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")

_log = logging.getLogger("bringup")


def cuda_uuids() -> tuple[str, ...]:
    """Return the UUIDs of these GPUs, `GPU-...`, in CUDA's order; none where there is no CUDA. Initialises CUDA.

    Asks the driver's library itself: a program with jax need not have the packages of the GPU backend.
    """
    try:
        library = ctypes.CDLL(_LIBRARY)
        # In CUDA 12 the one without a number gives a MIG device the UUID of its GPU.
        get_uuid = getattr(library, "cuDeviceGetUuid_v2", None) or library.cuDeviceGetUuid
        count, device, found = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(16)
        if library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count)):
            return ()
        uuids = []
        for ordinal in range(count.value):
            if library.cuDeviceGet(ctypes.byref(device), ordinal) or get_uuid(found, device):
                return ()
            uuids.append(f"GPU-{uuid.UUID(bytes=found.raw)}")
    except (AttributeError, OSError):
        return ()  # no library, or something else of that name
    return tuple(uuids)


class JaxGpus:
    """Keeps jax to this client's share of the GPUs of its host, where the launcher says that there are other clients.

    Without that, jax would take the memory of all of them in every client. GPUs that the user has chosen for this
    process, by `local_device_ids`, a variable or jax's own option, are left as they are.

    Args:
        config: of the backend.
        ask_uuids: returns the UUIDs of the GPUs that CUDA shows, in its order.
        is_installed: whether jax can use them.
    """

    def __init__(
        self,
        config: BackendConfig,
        *,
        ask_uuids: Callable[[], Sequence[str]] = cuda_uuids,
        is_installed: Callable[[], bool] = lambda: any(map(importlib.util.find_spec, _PLUGINS)),
    ) -> None:
        self._config = config
        self._ask_uuids = ask_uuids
        self._is_installed = is_installed
        self._share: tuple[int, ...] | None = None

    def restrict(self, jax: Any) -> None:
        """Set jax's option to this client's GPUs; without effect where jax is in use already.

        Raises:
            ConfigurationError: the clients cannot have as many GPUs each.
        """
        config = self._config
        if config.local_device_ids is not None or (config.num_local_clients or 1) == 1:
            return
        if is_own_choice(config.environment) or _visible(jax) != "all":
            return
        platforms = (getattr(jax.config, "jax_platforms", None) or "cuda").split(",")
        if not {"cuda", "gpu"} & set(platforms) or not self._is_installed():
            return
        if uuids := self._ask_uuids():
            owner = f"client {config.client_id} (JAX)"
            self._share = select_local_share(range(len(uuids)), config, owner=owner, variable=VISIBLE_VARIABLE)
            jax.config.update(_OPTION, ",".join(map(str, self._share)))

    def keep_share(self, devices: Sequence[Any]) -> Sequence[Any]:
        """Return this client's devices of jax's: all, unless jax was in use before `restrict`."""
        if self._share is None or not _are_gpus(devices) or len(devices) <= len(self._share):
            return devices
        _log.warning(
            "client %d: jax was in use before initialize(), and has all %d GPUs of this host; this client brings those "
            "of its share, %s, to the job. Initialize before the first use of jax.",
            self._config.client_id, len(devices), ", ".join(map(str, self._share)),
        )  # fmt: skip
        return [device for device in devices if getattr(device, "local_hardware_id", None) in self._share]

    def fingerprints(self, devices: Sequence[Any]) -> list[str]:
        """Return the UUID of each device, empty for one that has none."""
        uuids = self._ask_uuids() if _are_gpus(devices) else ()
        numbers = (getattr(device, "local_hardware_id", None) for device in devices)
        return [uuids[number] if isinstance(number, int) and 0 <= number < len(uuids) else "" for number in numbers]


def _visible(jax: Any) -> str:
    """Return what jax's own option says; nothing where this jax has no such option."""
    try:
        return str(jax.config.read(_OPTION))
    except (AttributeError, KeyError):
        return ""


def _are_gpus(devices: Sequence[Any]) -> bool:
    return bool(devices) and devices[0].platform == "gpu"
