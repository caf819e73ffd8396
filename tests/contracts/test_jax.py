"""The JAX backend with a real jax: each test has processes of its own, as jax is set up once in each."""

from __future__ import annotations

import importlib.util
import json
import socket
import subprocess
import sys
import textwrap

import pytest

from bringup.devices.base import Health

pytestmark = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")

EIGHT = "--xla_force_host_platform_device_count=8"

PREAMBLE = """
    from bringup.devices.base import BackendConfig
    from bringup.devices.jax.backend import JaxBackend
    from bringup.errors import BringupError

    def start(environment={}, **config):
        backend = JaxBackend(BackendConfig(environment=environment, **config))
        try:
            return backend, backend.start()
        except BringupError as error:
            print(type(error).__name__, error)
            raise SystemExit
"""


def begin(code: str, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-c", textwrap.dedent(PREAMBLE) + textwrap.dedent(code)],
        env={"PATH": "/usr/bin:/bin", "JAX_PLATFORMS": "cpu"} | environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output(process: subprocess.Popen[str]) -> str:
    out, error = process.communicate(timeout=100)
    assert process.returncode == 0, error
    return out


def run_jax(code: str, **environ: str) -> str:
    """Run code that has `start(**config)`, which gives the backend and its devices; returns what it printed."""
    return output(begin(code, **environ))


def test_real_devices_of_a_forced_host_platform() -> None:
    code = """
        backend, devices = start()
        print(devices == tuple(type(devices[0])("cpu", index) for index in range(8)))
        print(backend.check_health(), backend.check_health())
        backend.stop()
        print(backend.check_health())
    """
    well, stopped = Health(ok=True), Health(ok=False, detail="the JAX backend is not started")
    assert run_jax(code, XLA_FLAGS=EIGHT) == f"True\n{well} {well}\n{stopped}\n"


def test_logical_cpu_devices_are_as_many_as_asked_for() -> None:
    assert run_jax("print(len(start(num_logical_cpu_devices=5)[1]))", XLA_FLAGS=EIGHT) == "5\n"


def test_it_is_too_late_for_logical_cpu_devices_once_jax_is_in_use() -> None:
    code = """
        import jax
        jax.devices()
        print(len(start(num_logical_cpu_devices=8)[1]))
        start(num_logical_cpu_devices=3, client_id=1, num_clients=2)
    """
    assert run_jax(code, XLA_FLAGS=EIGHT).startswith(
        "8\nConfigurationError num_logical_cpu_devices=3 on client 1: jax is in use in this process already, with 8 CPU"
    )


def test_in_a_job_whose_processes_jax_does_not_know_the_merge_gives_ids() -> None:
    code = "print({device.core_id for device in start(num_clients=3, local_device_ids=(5, 2))[1]})"
    assert run_jax(code, XLA_FLAGS=EIGHT) == "{None}\n"


@pytest.mark.parametrize(
    ("platforms", "said"), [("cuda", "AssertionError"), ("nonsense", "is not in the list of known")]
)
def test_a_platform_that_is_not_there_is_named(platforms: str, said: str) -> None:
    code = f"start(client_id=1, num_clients=2, environment={{'JAX_PLATFORMS': {platforms!r}}})"
    out = run_jax(code, JAX_PLATFORMS=platforms)
    assert out.startswith("DeviceInitializationError client 1: jax did not bring its devices up: ")
    assert said in out
    assert f"JAX_PLATFORMS is {platforms!r}: check that jax is installed for that platform" in out


def test_a_device_that_computes_something_wrong_is_named() -> None:
    code = """
        import bringup.devices.jax.check as check
        made = check.JaxCheck.__init__

        def make(self, jax, devices):
            made(self, jax, devices)
            self._expected[3, 2, 1] += 1

        check.JaxCheck.__init__ = make
        start()
    """
    out = run_jax(code, XLA_FLAGS=EIGHT)
    # Newer versions of jax have shorter names.
    assert out.replace("TFRT_CPU_", "cpu:").startswith("DeviceInitializationError client 0: cpu:3 (element [0, 2, 1]: ")
    assert "likely a hardware failure" in out


@pytest.mark.parametrize("when", ["before", "after"])
def test_settings_of_the_users_program_are_its_own(when: str) -> None:
    """Before, they made the devices unhealthy, or the start fail."""
    code = """
        import jax

        def configure():
            jax.config.update("jax_transfer_guard", "disallow_explicit")
            jax.config.update("jax_default_matmul_precision", "BF16_BF16_BF16")

        configure() if {before} else None
        backend, devices = start()
        configure()
        print(backend.check_health(), jax.config.jax_transfer_guard)
    """
    assert run_jax(code.format(before=when == "before"), XLA_FLAGS=EIGHT) == f"{Health(ok=True)} disallow_explicit\n"


def test_a_busy_device_is_waited_for_by_the_next_check() -> None:
    code = """
        import jax
        import bringup.devices.jax.check as check

        computed = []

        class Busy:
            def __init__(self, part):
                self.device, self.index, self.data = part.device, part.index, self
            def is_ready(self):
                return False

        class Result:
            def __init__(self, given, result):
                computed.append(given)
                self.addressable_shards = [Busy(part) for part in result.addressable_shards]

        class BusyJax:
            def __getattr__(self, name):
                return getattr(jax, name)
            def jit(self, function):
                compute = jax.jit(function)
                return lambda given: Result(given, compute(given))

        subject = check.JaxCheck(BusyJax(), jax.local_devices())
        one, two = check.health_by(subject.run, 0.01), check.health_by(subject.run, 0.01)
        print(one.ok, two.ok, len(computed), one.detail.count(", "))
    """
    assert run_jax(code, XLA_FLAGS=EIGHT) == "True True 1 8\n"


def test_where_jax_knows_the_clients_of_the_job_ids_are_its_own() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    code = """
        import jax
        jax.distributed.initialize("127.0.0.1:{port}", 2, {client_id})
        backend, devices = start(client_id={client_id}, num_clients=2)
        print([device.core_id for device in devices], backend.check_health().ok)
        jax.distributed.shutdown()
    """
    flags = "--xla_force_host_platform_device_count=2"
    texts = (code.format(port=port, client_id=client_id) for client_id in range(2))
    processes = [begin(text, XLA_FLAGS=flags) for text in texts]
    said = [output(process) for process in processes]
    first, second = (json.loads(one.removesuffix(" True\n")) for one in said)
    assert len({*first, *second}) == 4


OVERLAPPING = """
    import asyncio, os
    import bringup

    async def main():
        starting = asyncio.ensure_future(bringup.initialize("JAX"))
        # The bring-up is in the middle of its import of jax, or has yet to begin, in one run or another.
        await asyncio.sleep({delay})
        import jax.numpy as jnp
        system = await starting
        print(system.device_type, float(jnp.ones(3).sum()))
        await system.shutdown()

    asyncio.run(main())
"""


@pytest.mark.parametrize("delay", [0.0, 0.1, 0.3])
def test_the_users_first_import_of_jax_may_come_at_any_time(delay: float) -> None:
    """Before, it failed with "partially initialized module", as the import went on in another thread."""
    assert run_jax(OVERLAPPING.format(delay=delay)) == "JAX 3.0\n"
