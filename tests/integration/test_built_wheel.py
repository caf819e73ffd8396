"""The sdist and the wheel that is built from it hold the tree, whole and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from ..lib.dangers import dangers_in

ROOT = Path(__file__).parents[2]
NOT_SHIPPED = {"scripts", "tests"}
SHIPPED_SUFFIXES = {".py", ".pyi", ".proto", ".typed"}


def copy_of_the_tree(folder: Path) -> Path:
    def ignored(_: str, names: list[str]) -> set[str]:
        return {name for name in names if name.startswith((".", "__pycache__")) or name in ("build", "dist")}

    return Path(shutil.copytree(ROOT, folder / "tree", ignore=ignored))


def shipped(tree: Path) -> set[str]:
    files = (path.relative_to(tree) for path in tree.rglob("*") if path.suffix in SHIPPED_SUFFIXES)
    return {str("bringup" / path) for path in files if path.parts[0] not in NOT_SHIPPED}


def test_the_wheel_from_the_sdist_is_the_tree(tmp_path: Path) -> None:
    tree = copy_of_the_tree(tmp_path)
    expected = shipped(tree)
    command = [sys.executable, "-P", "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(tree)]
    built = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=100)
    assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        sources = {name: archive.read(name).decode() for name in names if name.endswith(".py")}
        metadata = {name.split("/", 1)[1]: archive.read(name).decode() for name in names if ".dist-info/" in name}
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert {"bringup/py.typed", "bringup/devices/topology/protos/bringup_topology.proto"} <= expected
    assert metadata["licenses/LICENSE"] == (ROOT / "LICENSE").read_text()
    assert "bringup = bringup.commands.main:main" in metadata["entry_points.txt"]
    assert (ROOT / "README.md").read_text().strip() in metadata["METADATA"]
    running = {name for name, source in sources.items() if dangers_in(source)}
    assert running == {"bringup/processes/program.py"}, "what runs what it is given"
