"""Which GPUs jax is told to use, and what they are called."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from bringup.devices.base import BackendConfig
from bringup.devices.jax.gpus import JaxGpus
from bringup.errors import ConfigurationError

UUIDS = [f"GPU-{number}" for number in range(4)]
SHARE: dict[str, Any] = {"client_id": 5, "local_client_id": 1, "num_local_clients": 2}


class Jax:
    """As much of jax as knows which GPUs to use."""

    def __init__(self, visible: str = "all", platforms: str | None = None) -> None:
        self.values = {"jax_cuda_visible_devices": visible}
        self.config = SimpleNamespace(
            jax_platforms=platforms, update=self.values.__setitem__, read=self.values.__getitem__
        )

    @property
    def visible(self) -> str:
        return self.values["jax_cuda_visible_devices"]


def gpus(config: dict[str, Any], uuids: Sequence[str] = UUIDS, *, installed: bool = True) -> JaxGpus:
    return JaxGpus(BackendConfig(**config), ask_uuids=lambda: uuids, is_installed=lambda: installed)


def devices(*numbers: int, platform: str = "gpu") -> list[Any]:
    return [SimpleNamespace(platform=platform, local_hardware_id=number) for number in numbers]


@pytest.mark.parametrize("platforms", [None, "", "cuda", "cuda,cpu", "gpu"])
def test_jax_is_told_of_this_clients_share(platforms: str | None) -> None:
    jax, one = Jax(platforms=platforms), gpus(SHARE)
    one.restrict(jax)
    assert jax.visible == "2,3"
    found = devices(2, 3)
    assert one.keep_share(found) is found
    assert one.fingerprints(found) == ["GPU-2", "GPU-3"]


@pytest.mark.parametrize(
    ("config", "jax"),
    [
        ({}, Jax()),
        ({"local_client_id": 0, "num_local_clients": 1}, Jax()),
        (SHARE | {"local_device_ids": (0,)}, Jax()),
        (SHARE | {"environment": {"CUDA_VISIBLE_DEVICES": "1"}}, Jax()),
        (SHARE, Jax(visible="1,2")),
        (SHARE, Jax(platforms="cpu")),
    ],
    ids=["nobody says", "alone", "named", "its own", "jax's own", "no GPUs wanted"],
)
def test_what_was_chosen_otherwise_is_left_alone(config: dict[str, Any], jax: Jax) -> None:
    before = jax.visible
    gpus(config).restrict(jax)
    assert jax.visible == before


def test_a_jax_without_the_option_is_left_alone() -> None:
    gpus(SHARE).restrict(SimpleNamespace(config=SimpleNamespace()))


def test_the_real_jax_is_told() -> None:
    jax = pytest.importorskip("jax", reason="jax is not installed")
    name, platforms = "jax_cuda_visible_devices", jax.config.jax_platforms
    jax.config.update("jax_platforms", None)
    try:
        gpus(SHARE).restrict(jax)
        assert jax.config.read(name) == "2,3"
    finally:
        jax.config.update(name, "all")
        jax.config.update("jax_platforms", platforms)


def test_without_cuda_nobody_is_asked() -> None:
    jax = Jax()
    gpus(SHARE, installed=False).restrict(jax)
    gpus(SHARE, []).restrict(jax)
    assert jax.visible == "all"


def test_what_cannot_be_divided_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"client 5 \(JAX\) is one of 2 clients of its host .* sees, 3, cannot"
    ):
        gpus(SHARE, UUIDS[:3]).restrict(Jax())


def test_a_jax_that_was_in_use_before_brings_the_share_only(caplog: pytest.LogCaptureFixture) -> None:
    one = gpus(SHARE)
    one.restrict(Jax())
    with caplog.at_level(logging.WARNING):
        kept = one.keep_share(devices(0, 1, 2, 3))
    assert [device.local_hardware_id for device in kept] == [2, 3]
    assert "jax was in use before initialize(), and has all 4 GPUs" in caplog.text


def test_other_platforms_have_no_fingerprints() -> None:
    one = gpus(SHARE)
    one.restrict(Jax())
    cpus = devices(0, 1, 2, platform="cpu")
    assert one.keep_share(cpus) is cpus
    assert one.fingerprints(cpus) == ["", "", ""]
    assert one.fingerprints([]) == []
    assert one.fingerprints(devices(3, 7, -1)) == ["GPU-3", "", ""]
