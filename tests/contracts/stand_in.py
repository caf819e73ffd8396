"""A process that sees GPUs which do not exist: the real pynvml and cuda-bindings, over stand-ins for what they load."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_SOURCES = Path(__file__).with_name("stand_ins")
LIBRARIES = {"nvml.c": "libnvidia-ml.so.1", "cuda.c": "libcuda.so.1"}

_SESSION = """
import json, logging, sys
from bringup.devices.base import BackendConfig
from bringup.devices.gpu.backend import GpuBackend
from bringup.errors import BringupError

logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
config = json.loads(sys.argv[1])
ids = config.pop("local_device_ids", None)
backend = GpuBackend(BackendConfig(**config, local_device_ids=None if ids is None else tuple(ids)))
for line in sys.stdin:
    try:
        result = getattr(backend, line.strip())()
        if isinstance(result, tuple):
            said = [[device.kind, device.core_id, device.location, device.fingerprint] for device in result]
        else:
            said = {name: getattr(result, name) for name in getattr(type(result), "__slots__", ())}
    except BringupError as error:
        said = {"error": type(error).__name__, "text": str(error), "client_id": getattr(error, "client_id", None)}
    print(json.dumps(said), flush=True)
"""


def missing_for_stand_ins() -> str:
    """Return what keeps stand-ins from being used here, or nothing."""
    if sys.platform != "linux":
        return "the stand-ins are for Linux"
    if shutil.which("cc") is None:
        return "there is no C compiler (cc)"
    if importlib.util.find_spec("pynvml") is None:
        return "nvidia-ml-py is not installed"
    try:
        bindings = importlib.util.find_spec("cuda.bindings")
    except ModuleNotFoundError:
        bindings = None
    return "" if bindings is not None else "cuda-bindings is not installed"


def build(folder: Path) -> None:
    """Compile the stand-ins into a folder."""
    for source, library in LIBRARIES.items():
        command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(folder / library), source]
        subprocess.run(command, cwd=_SOURCES, check=True, timeout=60)


class StandIn:
    """A process with a GPU backend, which makes one call at a time.

    Args:
        libraries: the folder that the stand-ins were built into.
        folder: for its settings.
        settings: what the stand-ins pretend; `settings.h` says where, the sources what.
        config: of the backend, as JSON has it.
        visible: `CUDA_VISIBLE_DEVICES`, if any.
        environment: other variables.
    """

    def __init__(
        self,
        libraries: Path,
        folder: Path,
        settings: Mapping[str, int],
        config: Mapping[str, Any] | None = None,
        visible: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = folder / "settings"
        self._values: dict[str, int] = {}
        self.set(settings)
        variables = {**(environment or {}), **({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})}
        given = json.dumps({"environment": variables, **(config or {})})
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _SESSION, given],
            env=stand_in_environ(libraries, self._settings) | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def set(self, settings: Mapping[str, int]) -> None:
        """Pretend something more from now on."""
        self._values |= settings
        text = "".join(f"{name} {value}\n" for name, value in self._values.items())
        # At once: a half-written file would pretend something else.
        written = self._settings.with_suffix(".new")
        written.write_text(text)
        written.replace(self._settings)

    def call(self, name: str) -> Any:
        """Call a method of the backend, and return its result or its error, as JSON has it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{name}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, self._process.communicate()[1]
        return json.loads(line)

    def misuse(self) -> list[str]:
        """Return what the process did with the libraries that it must not."""
        noted = self._settings.with_name(f"{self._settings.name}.misuse")
        return noted.read_text().splitlines() if noted.exists() else []

    def end(self) -> str:
        """Have the process end in order, and return what it logged."""
        logged = self._process.communicate(timeout=60)[1]
        assert self._process.returncode == 0, logged
        return logged

    def kill(self) -> None:
        """End the process if it has not."""
        self._process.kill()
        self._process.communicate()


def stand_in_environ(libraries: Path, settings: Path) -> dict[str, str]:
    """Return the environment of a process that uses the stand-ins."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "BRINGUP_"))}
    return clean | {"LD_LIBRARY_PATH": str(libraries), "STAND_IN_SETTINGS": str(settings)}


def uuid(gpu: int, mig: int = 0) -> str:
    """Return the UUID of a GPU, or of its MIG device of that number."""
    return f"{'MIG' if mig else 'GPU'}-00000000-0000-0000-{mig:04x}-{gpu:012x}"


Make = Callable[..., StandIn]
"""Starts a process; takes settings, and what `StandIn` does."""
