"""Trees of arrays (nested dicts, lists and tuples, as of gradients): flattened, described and rebuilt. Pure."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import ConfigurationError

Array = npt.NDArray[Any]

_DESCRIPTION_CHARACTERS_MAX = 1500


def is_tree(value: object) -> bool:
    """Whether it is a dict, or a list or tuple with arrays or dicts at any depth; one of numbers is an array."""
    if isinstance(value, dict):
        return True
    return isinstance(value, list | tuple) and any(_is_array(child) or is_tree(child) for child in value)


def arrays_of(value: object, convert: Callable[[str, object], Array]) -> list[Array]:
    """Return the arrays of a tree, or a single array, in an order that is the same on every client.

    Raises:
        ConfigurationError: a key of a dict is neither a text nor a whole number.
    """
    return [convert(path, leaf) for path, leaf in _leaves(value, "")]


def rebuilt(value: object, arrays: Iterator[Array]) -> Any:
    """Return a tree like `value` with other arrays, in the order of `arrays_of`."""
    if isinstance(value, dict):
        tree = copy.copy(value)  # keeps its type and the order of its keys
        for key in _sorted_keys(value):
            tree[key] = rebuilt(value[key], arrays)
        return tree
    if is_tree(value):
        assert isinstance(value, list | tuple)
        children = [rebuilt(child, arrays) for child in value]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*children)
        return tuple(children) if isinstance(value, tuple) else children
    return next(arrays)


def describe(value: object, arrays: Iterator[Array]) -> str:
    """Return the structure, dtypes and shapes as text, bounded; the clients compare it."""
    text = _described(value, arrays)
    if len(text) <= _DESCRIPTION_CHARACTERS_MAX:
        return text
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]
    return f"{text[:_DESCRIPTION_CHARACTERS_MAX]}... (in all: sha256 {digest})"


def _described(value: object, arrays: Iterator[Array]) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!a}: {_described(value[key], arrays)}' for key in _sorted_keys(value))}}}"
    if is_tree(value):
        assert isinstance(value, list | tuple)
        children = ", ".join(_described(child, arrays) for child in value)
        return f"({children})" if isinstance(value, tuple) else f"[{children}]"
    array = next(arrays)
    return f"{array.dtype.name}{list(array.shape)}"


def _leaves(value: object, path: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key in _sorted_keys(value):
            yield from _leaves(value[key], f"{path}[{key!r}]")
    elif is_tree(value):
        assert isinstance(value, list | tuple)
        for index, child in enumerate(value):
            yield from _leaves(child, f"{path}[{index}]")
    else:
        yield path, value


def _sorted_keys(tree: dict[Any, Any]) -> list[Any]:
    for key in tree:
        if not isinstance(key, str | int):
            raise ConfigurationError(
                f"all_reduce: a key of a tree is {key!r}: keys are texts or whole numbers, so that all clients agree "
                "on their order"
            )
    return sorted(tree, key=lambda key: (isinstance(key, str), key))


def _is_array(value: object) -> bool:
    return not isinstance(value, np.generic) and hasattr(value, "__array__")
