"""The least versions of the dependencies: none has a published flaw that a job could meet.

A list in the tree, as the tests run without an advisory service; `scripts/audit` asks one before a release.
"""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import bringup

ROOT = Path(__file__).parents[2]

FIXED = {
    "cryptography": {
        "CVE-2023-50782": "42.0.0",
        "CVE-2024-0727": "42.0.2",
        "CVE-2024-26130": "42.0.4",
        "CVE-2024-6119": "43.0.1",
        "CVE-2024-12797": "44.0.1",
        "CVE-2026-26007": "46.0.5",
        "CVE-2026-34073": "46.0.6",
        "CVE-2026-39892": "46.0.7",
    },
    "grpcio": {
        "CVE-2023-32732": "1.53.1",
        "CVE-2023-33953": "1.56.2",
        "CVE-2023-4785": "1.56.2",
        "CVE-2024-7246": "1.65.4",
        "CVE-2024-11407": "1.66.2",
    },
    "numpy": {"CVE-2021-34141": "1.22.0"},
    "protobuf": {"CVE-2025-4565": "4.25.8", "CVE-2026-0994": "6.33.5"},
}
"""Advisories of the dependencies, each with the first version without it; looked up in autumn 2026."""

UNREACHED = {"CVE-2026-0994": r"json_format"}
"""Advisories whose function bringup does not use, by a pattern of its name: other packages need older versions."""


def requirements() -> dict[str, list[Requirement]]:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    found: dict[str, list[Requirement]] = {}
    for each in map(Requirement, listed):
        found.setdefault(each.name, []).append(each)
    return found


def least(requirement: Requirement) -> Version:
    """Return the oldest version that a requirement allows."""
    (bound,) = [each.version for each in requirement.specifier if each.operator == ">="]
    return Version(bound)


@pytest.mark.parametrize("package", FIXED)
def test_no_version_with_a_published_flaw_is_allowed(package: str) -> None:
    for requirement in requirements()[package]:
        for advisory, fixed in FIXED[package].items():
            assert advisory in UNREACHED or least(requirement) >= Version(fixed), f"{requirement} allows {advisory}"


@pytest.mark.parametrize("package", FIXED)
def test_what_is_installed_has_no_published_flaw(package: str) -> None:
    installed = Version(importlib.metadata.version(package))
    for advisory, fixed in FIXED[package].items():
        assert installed >= Version(fixed) or advisory in UNREACHED, advisory


@pytest.mark.parametrize("advisory", UNREACHED)
def test_what_an_allowed_flaw_is_in_is_not_used(advisory: str) -> None:
    for path in Path(bringup.__file__).parent.rglob("*.py"):
        assert not re.search(UNREACHED[advisory], path.read_text()), path


def test_every_dependency_has_a_least_version() -> None:
    assert all(least(requirement) for each in requirements().values() for requirement in each)
