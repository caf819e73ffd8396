"""A recording of all packets on the loopback interface."""

from __future__ import annotations

import os
import socket
import threading
from types import TracebackType
from typing import Self

_ETH_P_ALL = 3
_PACKET_BYTES_MAX = 2**17
_BUFFER_BYTES = 64 * 2**20
_SOL_PACKET, _PACKET_STATISTICS = 263, 6


class Sniffer:
    """Records from its begin to its end as a context manager.

    Attributes:
        packets: whole, with their headers.
        is_complete: whether the kernel has kept all for it.
    """

    def __init__(self) -> None:
        self.packets: list[bytes] = []
        self.is_complete = False
        self._socket: socket.socket
        self._thread = threading.Thread(target=self._record)
        self._end = os.urandom(32)

    def __enter__(self) -> Self:
        # Raises `PermissionError` for those who may not.
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        self._socket.bind(("lo", 0))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            # Again, until one is not lost.
            while self._thread.is_alive():
                sock.sendto(self._end, ("127.0.0.1", 9))
                self._thread.join(0.1)
        statistics = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
        self.is_complete = not int.from_bytes(statistics[4:], "little")
        self._socket.close()

    def has_seen(self, text: bytes, ports: set[int]) -> bool:
        """Return whether a text was in the packets from or to some TCP ports of 127.0.0.1."""
        return any(text in packet for packet in self.of(ports))

    def of(self, ports: set[int]) -> list[bytes]:
        """Return the packets from or to some ports."""
        wanted = {port.to_bytes(2, "big") for port in ports}
        # Ethernet has 14 bytes here, IPv4 20, and TCP begins with its ports.
        return [packet for packet in self.packets if {packet[34:36], packet[36:38]} & wanted]

    def _record(self) -> None:
        while self._end not in (packet := self._socket.recv(_PACKET_BYTES_MAX)):
            self.packets.append(packet)
