"""Python programs that a forked interpreter can run: `python -c CODE`, `python FILE`."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

_CODE_NAME = "<string>"

_READ_AT_START = ("PYTHON", "LC_", "LD_")
_ALSO_READ_AT_START = frozenset({"LANG", "LANGUAGE", "TZ"})


@dataclass(frozen=True, slots=True)
class PythonProgram:
    """A program and the options of the interpreter that apply to it.

    Attributes:
        code: the code, where it stands in the command.
        path: the file with the code, where it does not.
        argv: `sys.argv`.
        orig_argv: the whole command.
        is_safe: whether the folder of the program is no place for imports (`-P`).
        warnings: the values of options `-W`.
        prologue: code to run before, in a module of its own.
    """

    code: str | None
    path: str | None
    argv: tuple[str, ...]
    orig_argv: tuple[str, ...]
    is_safe: bool = False
    warnings: tuple[str, ...] = ()
    prologue: str = ""

    @classmethod
    def of_command(cls, command: Sequence[str]) -> Self | None:
        """Return the program of a command, or `None` where this takes an interpreter of its own.

        That is so for another program than `sys.executable`, modules (`-m`) and options other than `-P` and `-W`.
        """
        if not command or command[0] != sys.executable:
            return None
        is_safe, warnings, rest = False, list[str](), list(command[1:])
        while rest and rest[0] in ("-P", "-W"):
            if rest.pop(0) == "-P":
                is_safe = True
            elif rest:
                warnings.append(rest.pop(0))
        code = path = None
        if len(rest) > 1 and rest[0] == "-c":
            code, argv = rest[1], ["-c", *rest[2:]]
        elif rest and not rest[0].startswith("-"):
            path, argv = rest[0], rest
        else:
            return None
        return cls(code, path, tuple(argv), tuple(command), is_safe, tuple(warnings))

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> Self:
        """Return what `to_json` wrote."""
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in found.items()
        }
        return cls(**fields)

    def to_json(self) -> dict[str, Any]:
        """Return it as a value for JSON."""
        return asdict(self)

    def run(self) -> None:
        """Be the program from now on, as the module `__main__` of this process; raises what the program raises.

        Raises:
            OSError: the file cannot be read.
        """
        if self.prologue:
            exec(compile(self.prologue, "<prologue>", "exec"), {})  # noqa: S102 - what was asked for
        sys.argv, sys.orig_argv = list(self.argv), list(self.orig_argv)
        if not self.is_safe and not sys.flags.safe_path:
            sys.path.insert(0, "" if self.path is None else os.path.dirname(os.path.realpath(self.path)))
        if self.warnings:
            _filter_warnings(self.warnings)
        source = self._source()
        main = types.ModuleType("__main__")
        main.__dict__["__builtins__"] = sys.modules["builtins"]
        if self.path is not None:
            main.__file__ = self.path
        sys.modules["__main__"] = main
        code = compile(source, self.path or _CODE_NAME, "exec", dont_inherit=True)
        exec(code, main.__dict__)  # noqa: S102 - what was asked for

    def _source(self) -> str | bytes:
        if self.code is not None:
            return self.code
        assert self.path is not None
        with open(self.path, "rb") as file:
            return file.read()


def has_equal_start(environ: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether an interpreter would start alike in two environments: it reads some variables then, and never again."""
    return _of_the_start(environ) == _of_the_start(other)


def _of_the_start(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in environ.items() if name.startswith(_READ_AT_START) or name in _ALSO_READ_AT_START
    }


def _filter_warnings(options: Sequence[str]) -> None:
    import warnings

    sys.warnoptions.extend(options)
    for option in options:
        action, message, category, module, line = ([*option.split(":"), "", "", "", ""])[:5]
        kind = getattr(sys.modules["builtins"], category or "Warning")
        warnings.filterwarnings(action, message, kind, module, int(line or 0))  # type: ignore[arg-type]
