"""Cluster resolvers by their names, built in and of installed distributions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bringup.commands.resolve import resolve as resolve_command
from bringup.errors import ConfigurationError
from bringup.resolvers.registry import automatic_resolvers, find_resolver, known_names

Install = Callable[..., None]

MODULE = """
from bringup import ClusterJob, ConfigurationError, Detection

class Resolver:
    name = "lab"

    def detect(self, environment):
        size = environment.get("LAB_SIZE")
        return Detection.present(f"LAB_SIZE={size}") if size else Detection.absent("LAB_SIZE is not set")

    async def resolve(self, environment):
        if "LAB_RANK" not in environment:
            raise ConfigurationError("LAB_RANK is not set: start the program by lab-run")
        return ClusterJob(
            num_clients=int(environment["LAB_SIZE"]),
            client_id=int(environment["LAB_RANK"]),
            coordinator_address="head:7000",
            origins={"client_id": "LAB_RANK"},
        )

one = Resolver()
broken = 5
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a distribution that offers resolvers, as pip does: a module, and a folder with its metadata."""

    def install(**offered: str) -> None:
        (tmp_path / "lab_cluster.py").write_text(MODULE)
        metadata = tmp_path / "lab_cluster-1.2.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: lab-cluster\nVersion: 1.2\n")
        lines = [f"{name} = {value}" for name, value in offered.items()]
        (metadata / "entry_points.txt").write_text("\n".join(["[bringup.resolvers]", *lines, ""]))
        monkeypatch.syspath_prepend(str(tmp_path))

    return install


@pytest.mark.parametrize("value", ["lab_cluster:Resolver", "lab_cluster:one"])
def test_an_installed_resolver(install: Install, value: str) -> None:
    install(lab=value)
    assert find_resolver("Lab").name == "lab"
    assert [resolver.name for resolver in automatic_resolvers()][-1] == "lab"
    assert "lab" in known_names()


@pytest.mark.parametrize("value", ["lab_cluster:nothing", "lab_cluster:broken", "no_such_module:x", "json:JSONDecoder"])
def test_an_installed_resolver_that_is_none(install: Install, value: str) -> None:
    install(lab=value)
    for find in (lambda: find_resolver("lab"), automatic_resolvers):
        with pytest.raises(ConfigurationError, match=r"cluster resolver 'lab' that lab-cluster 1\.2 offers"):
            find()


def resolve(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(resolve_command, ["--json", *arguments], env=environ)


def test_the_command_asks_an_installed_resolver(install: Install) -> None:
    install(lab="lab_cluster:Resolver")
    found = json.loads(resolve(LAB_SIZE="3", LAB_RANK="1").stdout)
    considered = found.pop("considered")
    assert found == {
        "source": "lab",
        "jobs": None,
        "coordinator_address": "head:7000",
        "num_clients": 3,
        "client_id": 1,
        "local_client_id": None,
        "job_name": "worker",
    }
    assert considered[-1] == {"source": "lab", "verdict": "taken: LAB_SIZE=3"}
    for forced in ((), ("--resolver", "lab")):
        failed = resolve(*forced, LAB_SIZE="3")
        assert (failed.exit_code, failed.stdout) == (2, "")
        assert failed.stderr == "bringup: LAB_RANK is not set: start the program by lab-run\n"
    assert json.loads(resolve("--resolver", "none", LAB_SIZE="3").stdout)["source"] == "local mode"
