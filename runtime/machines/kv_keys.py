"""Keys as paths: their normal form, what is wrong with one, and the tree of directories that they make.

`///a//b/` is `a/b`. Prefixes are directories: below `a` lies `a/b`, and neither `a` itself nor `ab`. The empty key is a
key like any other and lies in no directory; as a directory it is the root, below which all others lie.
"""

from __future__ import annotations

from ...transport.service_messages import KEY_BYTES_MAX, VALUE_BYTES_MAX

__all__ = ["DIRECTORY_BYTES", "KeyTree", "bytes_of", "directories_of", "key_fault", "normalize", "value_fault"]

DIRECTORY_BYTES = 640
"""What a directory takes beside its path."""

_CHARS_SURELY_ALLOWED = KEY_BYTES_MAX // 4
_SHOWN_CHARS = 80


def normalize(key: str) -> str:
    """Return the key without slashes that lead, trail or repeat."""
    if "//" not in key and key[:1] != "/" and key[-1:] != "/":
        return key
    return "/".join([part for part in key.split("/") if part])


def bytes_of(key: str) -> int:
    """Return how many bytes a key has in UTF-8."""
    return len(key) if key.isascii() else len(key.encode("utf-8", "surrogatepass"))


def key_fault(key: str) -> str | None:
    """Say what is wrong with a normalised key; `None` where nothing is."""
    if key.isascii() and len(key) <= _CHARS_SURELY_ALLOWED:
        return None
    try:
        size = len(key.encode())
    except UnicodeEncodeError as error:
        shown = ascii(key[:_SHOWN_CHARS])
        return f"key {shown} is no UTF-8 text: {error.reason} at character {error.start}; use another key"
    if size > KEY_BYTES_MAX:
        return f"key {key[:_SHOWN_CHARS]!r}... has {size} bytes, at most {KEY_BYTES_MAX} are allowed; use a shorter one"
    return None


def value_fault(key: str, size: int) -> str | None:
    """Say what is wrong with a value of `size` bytes; `None` where nothing is."""
    if size <= VALUE_BYTES_MAX:
        return None
    return (
        f"the value for key {key!r} has {size} bytes, at most {VALUE_BYTES_MAX} are allowed; split it over several keys"
    )


def directories_of(key: str) -> list[str]:
    """Return the key and all directories that it lies in, the root last."""
    paths = [key]
    while key:
        key = key.rpartition("/")[0]
        paths.append(key)
    return paths


class _Directory:
    """What lies directly in a directory, as full paths, which are the very objects that the store holds."""

    __slots__ = ("directories", "keys")

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.directories: set[str] = set()


class KeyTree:
    """Which keys there are, by directory. To add or remove one takes the same time however many there are."""

    def __init__(self) -> None:
        self._root = _Directory()
        self._directories = {"": self._root}

    def add(self, key: str) -> int:
        """Add a key that is not there; returns how many bytes the directories take that it needs and that are new."""
        if not key:
            return 0
        parent = key.rpartition("/")[0]
        directory = self._directories.get(parent)
        if directory is not None:
            directory.keys.add(key)
            return 0
        directory = self._directories[parent] = _Directory()
        directory.keys.add(key)
        return self._attach(parent)

    def _attach(self, path: str) -> int:
        """Make the directories that a new one lies in; returns what all of them take, its own included."""
        size = 0
        while True:
            size += DIRECTORY_BYTES + bytes_of(path)
            parent = path.rpartition("/")[0]
            directory = self._directories.get(parent)
            if directory is not None:
                directory.directories.add(path)
                return size
            directory = self._directories[parent] = _Directory()
            directory.directories.add(path)
            path = parent

    def cost(self, key: str) -> int:
        """Return how many bytes the directories would take that `add` would make."""
        size = 0
        path = key.rpartition("/")[0]
        while path not in self._directories:
            size += DIRECTORY_BYTES + bytes_of(path)
            path = path.rpartition("/")[0]
        return size

    def remove(self, key: str) -> int:
        """Remove a key that is there; returns how many bytes the directories took that are empty now and gone."""
        if not key:
            return 0
        size = 0
        path = key.rpartition("/")[0]
        directory = self._directories[path]
        directory.keys.remove(key)
        while path and not directory.keys and not directory.directories:
            del self._directories[path]
            size += DIRECTORY_BYTES + bytes_of(path)
            child, path = path, path.rpartition("/")[0]
            directory = self._directories[path]
            directory.directories.remove(child)
        return size

    def below(self, prefix: str) -> list[str]:
        """Return the keys below a directory, sorted."""
        keys: list[str] = []
        open_directories = [self._directories[prefix]] if prefix in self._directories else []
        while open_directories:
            directory = open_directories.pop()
            keys.extend(directory.keys)
            open_directories.extend(map(self._directories.__getitem__, directory.directories))
        keys.sort()
        return keys
