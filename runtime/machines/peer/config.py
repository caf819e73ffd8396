"""The settings and the identity of one client's peer."""

from __future__ import annotations

from dataclasses import dataclass

from ....transport.wire.messages import PROTOCOL_VERSION, Register
from ..job_lists import digest_of

_REGISTRATION_SHARE = 0.25
"""Of the time to come up, for an answer to the first registration: the next one gets twice as much, and a quarter is
left for a third connection, where two lead nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerConfig:
    """The settings of a peer; durations in seconds.

    Attributes:
        addresses: the address of every client, or `None` where only the coordinator's is known.
        device_type: the type of its devices, empty where it shows only when they have come up.
        incarnation: drawn at random when the peer was made, 64 bits.
        fails_when_unhealthy: whether the job is to end where this client's devices become unhealthy.
        allow_empty: whether clients may take part without devices.
        share_devices: whether other clients may have this client's devices, if they allow it too.
    """

    client_id: int
    num_clients: int
    job_name: str
    coordinator_address: str
    addresses: tuple[str, ...] | None
    device_type: str
    incarnation: int
    hostname: str
    pid: int
    package_version: str
    initialization_timeout: float
    heartbeat_interval: float
    heartbeat_timeout: float
    shutdown_timeout: float
    fails_when_unhealthy: bool = False
    allow_empty: bool = False
    share_devices: bool = False

    @property
    def registration_patience(self) -> float:
        """The seconds for an answer to the first registration; each next one gets twice as many."""
        return min(self.heartbeat_timeout, _REGISTRATION_SHARE * self.initialization_timeout)

    def registration(self, link_address: str, attempt: int = 1) -> Register:
        """Return this peer's registration; `link_address` is where the others reach its links."""
        return Register(
            client_id=self.client_id,
            num_clients=self.num_clients,
            job_name=self.job_name,
            protocol_version=PROTOCOL_VERSION,
            package_version=self.package_version,
            incarnation=self.incarnation,
            address=self.addresses[self.client_id] if self.addresses else link_address,
            hostname=self.hostname,
            pid=self.pid,
            link_address=link_address,
            device_type=self.device_type,
            heartbeat_interval=self.heartbeat_interval,
            jobs_digest=digest_of(self.addresses),
            attempt=attempt,
        )
