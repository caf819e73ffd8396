"""The list of packages in pyproject.toml is the tree: a folder that is left out is missing from the wheel."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOT_SHIPPED = {"build", "dist", "scripts", "tests"}


def folders_of_the_tree() -> set[Path]:
    found = set()
    for folder, below, files in os.walk(ROOT):
        below[:] = [name for name in below if not name.startswith((".", "__")) and name not in NOT_SHIPPED]
        if "__init__.py" in files:
            found.add(Path(folder))
    return found


def test_packages_are_the_folders_of_the_tree() -> None:
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = configuration["tool"]["setuptools"]["packages"]
    in_tree = [".".join(("bringup", *folder.relative_to(ROOT).parts)) for folder in folders_of_the_tree()]
    assert listed == sorted(in_tree)


def test_every_folder_with_python_is_a_package() -> None:
    packages = folders_of_the_tree()
    for folder, below, files in os.walk(ROOT):
        below[:] = [name for name in below if not name.startswith((".", "__")) and name not in NOT_SHIPPED]
        assert Path(folder) in packages or not any(name.endswith(".py") for name in files), folder
