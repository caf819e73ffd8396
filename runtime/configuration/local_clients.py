"""Which one of the clients of its host this one is, as its launcher says: they divide the devices by that."""

from __future__ import annotations

from collections.abc import Mapping

from .finding import incomplete
from .settings import Setting, as_integer

LOCAL_CLIENT_ID = "BRINGUP_LOCAL_CLIENT_ID"
NUM_LOCAL_CLIENTS = "BRINGUP_NUM_LOCAL_CLIENTS"

_MOST = 1 << 16


def local_clients(environ: Mapping[str, str]) -> tuple[int, int] | None:
    """Return the number of this client among those of its host, and how many these are; `None` where nobody says.

    Raises:
        ConfigurationError: one of the two variables is missing or malformed.
    """
    local_id, count = (Setting.from_environ(environ, name) for name in (LOCAL_CLIENT_ID, NUM_LOCAL_CLIENTS))
    if not local_id.is_set and not count.is_set:
        return None
    for given, missing in ((local_id, count), (count, local_id)):
        if not missing.is_set:
            raise incomplete(str(given), [missing.name], "describes the clients of a host")
    number = as_integer(count, "a number of clients", least=1, most=_MOST)
    return as_integer(local_id, f"a client's number among {number} of its host", least=0, most=number - 1), number
