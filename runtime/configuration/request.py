"""The arguments of `initialize()`, as one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ...errors import PeerFailedError
from .settings import Hidden

if TYPE_CHECKING:
    from .options import Options

OnFailure = Literal["raise", "exit"] | Callable[[PeerFailedError], object]


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of one call of `initialize()`, unchecked; see there for their meaning.

    Its fields are the parameters of `bringup.initialize` and `bringup.sync.initialize`, by the same names and with the
    same defaults.
    """

    device_type: str | None = None
    jobs: str | Sequence[str] | None = None
    client_id: int | None = None
    num_clients: int | None = None
    job_name: str | None = None
    local_device_ids: int | Sequence[int] | None = None
    num_logical_cpu_devices: int | None = None
    enable_coordination_service: bool = True
    enable_megacore: bool = False
    reset: bool = False
    resolver: object | None = None
    on_failure: OnFailure = "raise"
    options: Options | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (token := self.overrides.get("token")) is not None:
            object.__setattr__(self, "overrides", {**self.overrides, "token": Hidden(token)})
