"""The UUIDs of the GPUs that CUDA shows this process, in CUDA's order, for backends that use CUDA through jax.

Asked of the driver's library itself: who uses jax need not have the packages of the GPU backend.
"""

from __future__ import annotations

import ctypes
import uuid

_LIBRARY = "libcuda.so.1"


def cuda_uuids() -> tuple[str, ...]:
    """Return the UUIDs of these GPUs, `GPU-...`, in CUDA's order; none where there is no CUDA. Initialises CUDA."""
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
