"""The tree is the architecture: what may import what, and how large things may be."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import bringup
from bringup import errors

from ..lib.dangers import dangers_in

ROOT = Path(bringup.__file__).parent
LAYERS = {
    "errors": set[str](),
    "devices": {"errors", "processes"},
    "transport": {"errors"},
    "processes": {"errors"},
    "resolvers": {"errors", "transport"},
    "runtime": {"errors", "devices", "transport", "processes", "resolvers", ""},
    "testing": {"errors", "devices", "transport", "processes", "runtime", ""},
    "commands": {"errors", "devices", "transport", "processes", "runtime", ""},
    "sync": {"runtime"},
    "compat": {"errors", "runtime"},
}
"""The parts that the modules of each part may import beside their own; `""` is the package's own face."""

IMPURE = {"asyncio", "multiprocessing", "os", "random", "secrets", "select", "signal", "socket", "subprocess"} | {
    "threading",
    "time",
    "datetime",
}
PORTS = {"transport.ports"}
"""Protocols of asynchronous things: pure modules take their records and enums from here."""

READS_THE_ENVIRONMENT = {
    "runtime.initialize",
    "runtime.client.lifecycle",
    "transport.grpc.settings",
    "processes.fork_server",  # hands it on
    "processes.fork_main",  # takes that of its program
}
RUNS_PROGRAMS = {"processes.program"}
"""Modules in the place of the interpreter, which run a user's command."""

CALLS_THE_FACE = {"testing.client"}
"""Modules in the place of a user's program, which import bringup as one does."""

LINES_MAX = 500
MEDIAN_LINES_MAX = 200
"""Half of the modules are shorter: the ceiling is for the few subjects that cannot be cut in two."""
FUNCTION_LINES_MAX = 60
"""Of a function's body, its docstring apart."""

LONGER: dict[str, int] = {}
"""Modules and functions that are longer than that today, with their lengths: this may only shrink."""


def name_of(path: Path) -> str:
    """Return a module's name within the package; the package itself is `""`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {
    name_of(path): path
    for path in sorted(ROOT.rglob("*.py"))
    if path.relative_to(ROOT).parts[0] in LAYERS or path.parent == ROOT
    if "_pb2" not in path.name
}


PURE = [
    "runtime.machines",
    *(name for name in FILES if name.startswith(("runtime.machines.", "devices.topology."))),
    "runtime.configuration.validation",
    "processes.report",
    "processes.json_lines",
    "devices.topology",
    "commands.topology.drawing",
    "resolvers.base",
    "resolvers.gketpu",
    "resolvers.host_lists",
    "resolvers.k8s",
    "resolvers.lws",
    "resolvers.ompi",
    "resolvers.ports",
    "resolvers.sagemaker",
    "resolvers.tf_config",
    "resolvers.torchrun",
    "resolvers.variables",
    "transport.addresses",
    "transport.attempts",
    "transport.backlog",
    "transport.wire.control",
    "transport.wire.messages",
    "transport.wire.session_messages",
    "transport.wire.form",
    "transport.wire.framing",
    "transport.wire.services",
    "transport.collectives.frames",
    "transport.collectives.schedule",
    "transport.tcp.handshake",
    "transport.texts",
    "devices.sim.slice",
    "devices.sim.faults",
    "devices.answers",
    "devices.health_filter",
    "devices.texts",
    "devices.tpu.chips",
    "devices.tpu.cores",
    "devices.tpu.environment",
    "devices.tpu.errors",
    "devices.isolation.frames",
    "devices.gpu.location",
    "devices.gpu.health",
    "devices.gpu.visible_devices",
    "devices.gpu.xids",
    "devices.jax.devices",
    "devices.tpu.slices",
    "errors",
]


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(FILES[module].read_text())


def imports_of(module: str) -> Iterator[str]:
    """Yield what a module imports: `.a.b` for modules of this package, `a.b` for others."""
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                package = module.split(".") if FILES[module].name == "__init__.py" else module.split(".")[:-1]
                base = [part for part in package[: len(package) - node.level + 1] if part]
                origin = "." + ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{origin}.{alias.name}".replace("..", ".")
                yield inner if inner.removeprefix(".") in FILES and origin.startswith(".") else origin


def own(imports: Iterator[str]) -> set[str]:
    return {name.removeprefix(".") for name in imports if name.startswith(".")}


def foreign(imports: Iterator[str]) -> set[str]:
    return {name.split(".")[0] for name in imports if not name.startswith(".")}


@pytest.mark.parametrize("module", [name for name in FILES if name not in ("", "__main__")])
def test_imports_point_one_way(module: str) -> None:
    part = module.split(".")[0]
    imported = {name.split(".")[0] for name in own(imports_of(module))} - {part}
    assert imported <= LAYERS[part], f"{module} imports {imported - LAYERS[part]}"
    if module not in CALLS_THE_FACE:
        assert "bringup" not in foreign(imports_of(module)), f"{module} does not import its siblings relatively"


@pytest.mark.parametrize("module", PURE)
def test_pure_modules_touch_no_world(module: str) -> None:
    chain = [module]
    seen = set(PORTS)
    while chain:
        current = chain.pop()
        seen.add(current)
        impure = foreign(imports_of(current)) & IMPURE
        assert not impure, f"{module} is to be pure, and imports {impure} by way of {current}"
        chain += own(imports_of(current)) & set(FILES) - seen - {""}


def test_ports_promise_and_do_nothing() -> None:
    assert not foreign(imports_of("transport.ports")) & IMPURE


RUNTIME_LAYERS = {
    "runtime.machines": ["runtime.machines"],
    "runtime.configuration": ["runtime.machines", "runtime.configuration"],
    "runtime.drivers": ["runtime.machines", "runtime.configuration", "runtime.drivers"],
    "runtime.client": ["runtime.machines", "runtime.configuration", "runtime.drivers", "runtime.client"],
}
"""What the modules of each folder of `runtime` may import there; those at its root are the faces, above all of them."""


@pytest.mark.parametrize("folder", RUNTIME_LAYERS)
def test_the_folders_of_the_runtime_import_downwards(folder: str) -> None:
    for module in FILES:
        if f"{module}.".startswith(f"{folder}."):
            inside = {name for name in own(imports_of(module)) if name.startswith("runtime")}
            lower = tuple(f"{each}." for each in RUNTIME_LAYERS[folder])
            assert not {name for name in inside if not f"{name}.".startswith(lower)}, module


def test_only_the_edge_reads_the_environment() -> None:
    names = {"environ", "environb", "getenv", "getenvb", "putenv"}
    for module in FILES:
        if module in READS_THE_ENVIRONMENT or module.startswith(("commands", "testing")):
            continue
        for node in ast.walk(tree_of(module)):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "os":
                assert node.attr not in names, f"{module} line {node.lineno}"
            if isinstance(node, ast.ImportFrom) and node.module == "os":
                assert not names & {alias.name for alias in node.names}, f"{module} line {node.lineno}"


def test_transport_only_tells_grpc_by_the_environment() -> None:
    lines = [line for line in FILES["transport.grpc.settings"].read_text().splitlines() if "os.environ" in line]
    assert all(line.startswith('os.environ.setdefault("GRPC_') for line in lines)


def test_nothing_that_comes_from_a_wire_can_run() -> None:
    for path in sorted(ROOT.rglob("*.py")):
        module = name_of(path)
        dangers = dangers_in(path.read_text(), runs_programs=module in RUNS_PROGRAMS)
        assert not dangers, f"{module}: {dangers}"


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from multiprocessing.connection import Client",
        "from yaml import safe_load",
        "eval(text)",
        "builtins.exec(text)",
        "np.load(file)",
        "subprocess.run(text, shell=True)",
        "numpy.load(file, allow_pickle=True)",
    ],
)
def test_what_would_run_what_it_is_given_is_found(source: str) -> None:
    assert dangers_in(source)


def test_everything_logs_by_one_name() -> None:
    """What `runtime.client.output` promises of the runtime's loop, it keeps for that logger."""
    for module in FILES:
        for node in ast.walk(tree_of(module)):
            if (
                module != "runtime.client.output"
                and isinstance(node, ast.Call)
                and ast.unparse(node.func).endswith("getLogger")
            ):
                assert [ast.unparse(argument) for argument in node.args] == ["'bringup'"], (
                    f"{module} line {node.lineno}"
                )


def test_one_client_is_no_clients() -> None:
    """What names clients by their ids is `name_ids`: a text with `clients` before them is wrong where there is one."""
    for module, path in FILES.items():
        assert "clients {format_ids(" not in path.read_text(), module


def test_the_root_holds_three_python_files() -> None:
    assert {path.name for path in ROOT.glob("*.py")} == {"__init__.py", "__main__.py", "errors.py"}


@pytest.mark.parametrize("module", FILES)
def test_files_and_functions_stay_small(module: str) -> None:
    lines = len(FILES[module].read_text().splitlines())
    assert lines <= LONGER.get(module, LINES_MAX), f"{module} has {lines} lines"
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name, length = f"{module}.{node.name}", body_lines(node)
            assert length <= LONGER.get(name, FUNCTION_LINES_MAX), f"{name} has {length} lines"


def test_half_of_the_modules_are_short() -> None:
    assert statistics.median(len(path.read_text().splitlines()) for path in FILES.values()) < MEDIAN_LINES_MAX


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_every_module_says_what_it_is_for() -> None:
    for module, path in FILES.items():
        assert ast.get_docstring(tree_of(module)), f"{path} has no docstring"


def test_the_lazy_names_are_those_that_type_checkers_see() -> None:
    (block,) = [node for node in tree_of("").body if isinstance(node, ast.If)]
    seen = {
        (alias.name, node.module): alias.asname
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {name for name, _ in seen} == set(seen.values()), "a name is not exported under itself"
    assert {(name, home) for name, home in bringup._HOME_OF.items()} == set(seen) - {("sync", None)}
    assert set(bringup.__all__) == {name for name, _ in seen} | {"__version__"}
    for name in bringup.__all__:
        assert getattr(bringup, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        bringup.no_such_name  # noqa: B018


def test_importing_the_package_costs_next_to_nothing() -> None:
    script = "import sys, bringup; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=True, text=True)
    loaded = set(run.stdout.split())
    heavy = {
        "numpy",
        "grpc",
        "msgspec",
        "asyncio",
        "google.protobuf",
        "aiohttp",
        "uvloop",
        "rich",
        "click",
        "dataclasses",
    }
    assert not loaded & heavy, f"`import bringup` loads {loaded & heavy}"


def test_every_module_can_be_imported() -> None:
    for found in pkgutil.walk_packages([str(ROOT)], "bringup."):
        if found.name.split(".")[1] in LAYERS and not found.name.endswith("__main__"):
            importlib.import_module(found.name)


def test_the_errors_are_all_in_the_docstring_with_their_bases() -> None:
    assert errors.__doc__ is not None
    told = dict(re.findall(r"(?<!\()\b(\w+Error)(?: \((\w+)\))?", errors.__doc__))
    classes = {
        name: value for name, value in vars(errors).items() if getattr(value, "__module__", "") == errors.__name__
    }
    assert set(told) == set(classes) == set(errors.__all__)
    for name, second in told.items():
        first, *others = (base.__name__ for base in classes[name].__bases__)
        assert others == ([second] if second else []), name
        assert first in (*told, "Exception"), name
