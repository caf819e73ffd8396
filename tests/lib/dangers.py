"""The ways in which Python code would run what it is given, found in a source."""

from __future__ import annotations

import ast

UNPICKLERS = {
    "_pickle",
    "cloudpickle",
    "copyreg",
    "dill",
    "joblib",
    "jsonpickle",
    "marshal",
    "multiprocessing",  # its connections and queues unpickle
    "pickle",
    "shelve",
    "yaml",
}
"""Modules that make any object of bytes, and no module of bringup imports."""

INTERPRETERS = {"__import__", "compile", "eval", "exec"}

CALLS = {
    "ET.XML",
    "ET.fromstring",
    "ET.parse",
    "np.load",
    "numpy.load",
    "os.popen",
    "os.system",
    "torch.load",
}
"""Functions that unpickle, start a shell, or expand entities."""


def dangers_in(source: str, *, runs_programs: bool = False) -> list[str]:
    """Return what in a module runs, or could run, what it is given; empty where nothing does.

    Args:
        source: of the module.
        runs_programs: whether to run a user's program is its purpose.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = {alias.name for alias in node.names} if isinstance(node, ast.Import) else {node.module or ""}
            is_relative = isinstance(node, ast.ImportFrom) and node.level
            if not is_relative and (bad := {module.split(".")[0] for module in modules} & UNPICKLERS):
                found.append(f"line {node.lineno} imports {', '.join(sorted(bad))}")
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if (called.removeprefix("builtins.") in INTERPRETERS and not runs_programs) or called in CALLS:
                found.append(f"line {node.lineno} calls {called}")
            if any(word.arg in ("shell", "allow_pickle") for word in node.keywords):
                found.append(f"line {node.lineno} asks for a shell or for pickle")
    return found
