"""The reports of a client to its launcher: two small files, beside each other.

`PREFIX.state` holds its state. `PREFIX.error` holds its error and the clients that caused it, as far as known, in the
format of torchrun's error files (`torch.distributed.elastic.multiprocessing.errors`) with one field more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import PeerFailedError, RendezvousTimeoutError

LAUNCHER = "BRINGUP_LAUNCHER"
"""The variable in which a launcher says where a client is to tell it; the PREFIX of the files."""

_TORCH_FILE = "TORCHELASTIC_ERROR_FILE"
_TEXT_CHARACTERS_MAX = 4096
_TRACE_CHARACTERS_MAX = 65536


@dataclass(frozen=True, slots=True)
class Launch:
    """The paths for reports to launchers; empty without a launcher."""

    prefix: str = ""
    torch_file: str = ""

    @classmethod
    def of_environment(cls, environ: Mapping[str, str]) -> Launch:
        """Return the paths that the environment gives."""
        return cls(environ.get(LAUNCHER, ""), environ.get(_TORCH_FILE, ""))

    def __bool__(self) -> bool:
        return bool(self.prefix or self.torch_file)


def state_path(prefix: str) -> str:
    """Return where a client says how far it has got."""
    return f"{prefix}.state"


def error_path(prefix: str) -> str:
    """Return where a client says what ended it."""
    return f"{prefix}.error"


def owner_path(prefix: str) -> str:
    """Return where stands which process a client is: its children have its environment, and no part in this."""
    return f"{prefix}.pid"


@dataclass(frozen=True, slots=True)
class ClientState:
    """The state of a client.

    Attributes:
        state: `starting` (it is in `initialize()`), `up`, or `left` (in order, with all others).
        jobs: the addresses of the job that it comes up in.
    """

    state: str
    jobs: tuple[str, ...]

    def to_json(self) -> str:
        """Return it as text."""
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> ClientState | None:
        """Return what `to_json` wrote, or `None` where it did not write this."""
        try:
            found = json.loads(text)
            return cls(str(found["state"]), tuple(map(str, found["jobs"])))
        except (ValueError, TypeError, KeyError):
            return None


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """The error that ended a client, or its job.

    Attributes:
        host: the client's.
        error: the name of the exception's type.
        text: its message.
        trace: its traceback, empty where the program has not ended by it.
        culprits: the clients that it names as having failed before; empty where it was this one's own doing.
        missing: whether they never came.
        cause: what happened to them.
        at: when, in seconds since the epoch.
    """

    host: str
    error: str
    text: str
    trace: str
    culprits: tuple[int, ...]
    missing: bool
    cause: str
    at: float

    @classmethod
    def of_error(
        cls, error: BaseException, *, client_id: int, host: str, trace: str, failure: BaseException | None, at: float
    ) -> ErrorReport:
        """Return the report of an exception; `failure` is what had ended the job before, if anything had."""
        culprits, missing, cause = culprits_of(error, client_id, failure)
        text = str(error)[:_TEXT_CHARACTERS_MAX]
        return cls(host, type(error).__name__, text, trace[-_TRACE_CHARACTERS_MAX:], culprits, missing, cause, at)

    def to_json(self) -> str:
        """Return it as text: a torchrun error file that says more."""
        return json.dumps({**torch_error(self), "bringup": asdict(self)})

    @classmethod
    def of_json(cls, text: str) -> ErrorReport | None:
        """Return what `to_json` wrote, or `None` where it did not write this."""
        try:
            found = json.loads(text)["bringup"]
            return cls(
                host=str(found["host"]),
                error=str(found["error"]),
                text=str(found["text"]),
                trace=str(found["trace"]),
                culprits=tuple(int(client_id) for client_id in found["culprits"]),
                missing=bool(found["missing"]),
                cause=str(found["cause"]),
                at=float(found["at"]),
            )
        except (ValueError, TypeError, KeyError):
            return None


def torch_error(report: ErrorReport) -> dict[str, Any]:
    """Return what torchrun reads. It takes the error with the smallest time, in whole seconds, for the root cause."""
    seconds = int(report.at) + (1 if report.culprits else 0)
    extra = {"py_callstack": report.trace, "timestamp": str(seconds)}
    return {"message": {"message": f"{report.error}: {report.text}", "extraInfo": extra}}


def culprits_of(
    error: BaseException, client_id: int, failure: BaseException | None
) -> tuple[tuple[int, ...], bool, str]:
    """Return whose failure an exception of a client is a consequence of, whether they never came, and what they had.

    An exception is a consequence where it, or one that it was raised from or while handling, says that others failed;
    and where the job had failed before, whatever else the program met because of that.
    """
    for told in (*exceptions_behind(error), *([] if failure is None else [failure])):
        if isinstance(told, RendezvousTimeoutError):
            others = tuple(sorted(missing for missing in told.missing if missing != client_id))
            return others, bool(others), str(told)[:_TEXT_CHARACTERS_MAX]
        if isinstance(told, PeerFailedError) and told.client_id is not None:
            culprits = () if told.client_id == client_id else (told.client_id,)
            return culprits, False, told.cause[:_TEXT_CHARACTERS_MAX]
    return (), False, ""


def exceptions_behind(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and all that a traceback of it shows, each once."""
    seen: set[int] = set()
    unseen = [error]
    while unseen:
        told = unseen.pop()
        if id(told) in seen:
            continue
        seen.add(id(told))
        yield told
        unseen += [behind for behind in (told.__context__, told.__cause__) if behind is not None]
        if isinstance(told, BaseExceptionGroup):
            unseen += told.exceptions


def error_to_json(error: BaseException) -> dict[str, Any]:
    """Return an exception as a value for JSON: its type with all bases, its text, and its public attributes."""
    return {
        "error": type(error).__name__,
        "bases": [base.__name__ for base in type(error).__mro__],
        "text": str(error),
        "attributes": {name: value for name, value in vars(error).items() if not name.startswith("_")},
    }
