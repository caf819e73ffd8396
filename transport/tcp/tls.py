"""TLS between a TCP connection and its protocol: the same on every event loop.

The loops' own TLS keeps a quarter of a megabyte for each connection, waits for the other side when it closes, and takes
"nothing may wait here" for "always full"; `ssl` itself does all that is cryptography, here as there.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterable
from typing import Any, cast

from ..security.identity import subject_of
from ..security.terms import RefusedError, Terms

_SCRATCH_BYTES = 256 * 1024
"""Read from the kernel at a time: sixteen records of TLS."""

_RECORD_BYTES = 16 * 1024
"""The largest content of one record of TLS."""

_TLS_HANDSHAKE = 0x16
"""The first byte of whoever speaks TLS."""


class _Scratch(threading.local):
    """Memory for what comes from the kernel: it is decrypted before the loop reads from another connection."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_SCRATCH_BYTES))


_scratch = _Scratch()


class TlsTransport(asyncio.BufferedProtocol):
    """A transport over TLS: the protocol of a TCP connection, and the transport of another protocol.

    That is told of the connection at once, before the handshake: what it sends is kept until then, and nothing comes.
    Where the handshake fails, it is told that the connection is lost.

    Args:
        terms: of this side.
        protocol: that uses the connection.
        is_server: whether this side has accepted it.
    """

    def __init__(self, terms: Terms, protocol: asyncio.BaseProtocol, *, is_server: bool) -> None:
        self._terms = terms
        self._is_server = is_server
        self._raw: asyncio.Transport
        self._tls: ssl.SSLObject | None = None
        self._read: Callable[..., bytes | int]
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._early: list[bytes] | None = []
        self._client_id: int | None = None
        self._refusal: RefusedError | None = None
        self._is_reading = True
        self._has_eof = False
        self._has_ended = False  # the protocol knows
        self.set_protocol(protocol)

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop once connected."""
        self._raw = cast(asyncio.Transport, transport)
        self._protocol.connection_made(cast(asyncio.Transport, self))
        if not self._is_server and not self._raw.is_closing():
            self._shake_hands()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by the loop: return the buffer for the next read."""
        return _scratch.view

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the loop when it has read."""
        if self._has_ended or self._raw.is_closing():
            return None
        if self._tls is None and _scratch.view[0] != _TLS_HANDSHAKE:
            return self._fail(RefusedError("it does not speak TLS"))
        self._incoming.write(_scratch.view[:nbytes])
        if self._early is not None:
            self._shake_hands()
        if self._early is None:
            self._decrypt()
        return None

    def eof_received(self) -> bool:
        """Called by the loop when the other side has closed: what has come before is handed on first."""
        self._has_eof = True
        if self._early is None:
            self._decrypt()
        else:
            self._end()
        return not self._has_ended

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop when the connection is gone."""
        self._has_ended = True
        self._protocol.connection_lost(self._refusal or exc)

    def pause_writing(self) -> None:
        """Called by the loop when the other side is slow."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Called by the loop when the other side has caught up."""
        self._protocol.resume_writing()

    # What the protocol calls: see `asyncio.Transport`.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send `data`, which may be changed afterwards."""
        if self._early is not None:
            self._early.append(bytes(data))
        elif not self._raw.is_closing():
            self._encrypt(data)

    def writelines(self, parts: Iterable[bytes]) -> None:
        """Send `parts`."""
        self.write(b"".join(parts))

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand what comes from now on to `protocol`."""
        self._protocol = cast(asyncio.Protocol, protocol)
        self._buffered = protocol if isinstance(protocol, asyncio.BufferedProtocol) else None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the bounds of what is encrypted and waits for the kernel."""
        self._raw.set_write_buffer_limits(high, low)

    def is_reading(self) -> bool:
        """Return whether what comes is handed on."""
        return self._is_reading

    def pause_reading(self) -> None:
        """Hand on no more."""
        self._is_reading = False
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Hand on what has come, and comes."""
        self._is_reading = True
        self._raw.resume_reading()
        if self._early is None:
            asyncio.get_running_loop().call_soon(self._decrypt)

    def is_closing(self) -> bool:
        """Return whether the connection is, or has been, closed."""
        return self._raw.is_closing()

    def close(self) -> None:
        """Close after what was sent, and say so to the other side; its answer is not waited for."""
        if self._raw.is_closing():
            return
        if self._early is None and self._tls is not None:
            try:
                self._tls.unwrap()
            except (ssl.SSLError, OSError):
                pass  # it would like to hear the other side's farewell
            self._flush()
        self._raw.close()

    def abort(self) -> None:
        """Close at once."""
        self._raw.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the connection.

        `client_id` is that of the other side's certificate, or `None`; `refusal` is the reason why it ends, where
        one side does not trust the other.
        """
        match name:
            case "client_id":
                return self._client_id
            case "refusal":
                return self._refusal
        return self._raw.get_extra_info(name, default)

    # TLS.

    def _shake_hands(self) -> None:
        if self._tls is None:
            self._tls = self._terms.context.wrap_bio(self._incoming, self._outgoing, server_side=self._is_server)
            self._read = cast("Callable[..., bytes | int]", self._tls.read)
        try:
            self._tls.do_handshake()
            self._client_id = self._terms.identify(subject_of(self._tls.getpeercert() or {}))
        except ssl.SSLWantReadError:
            return self._flush()
        except ssl.SSLError as error:
            self._flush()  # tells the other side
            return self._fail(RefusedError(describe(error)))
        except RefusedError as error:
            return self._fail(error)
        early, self._early = self._early, None
        self._flush()
        for data in early or ():
            self._encrypt(data)
        return None

    def _encrypt(self, data: bytes | bytearray | memoryview) -> None:
        assert self._tls is not None
        view = memoryview(data)
        try:
            while view:
                view = view[self._tls.write(view) :]
        except ssl.SSLError as error:
            self._fail(RefusedError(describe(error)))
        self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._raw.write(self._outgoing.read())

    def _decrypt(self) -> None:
        """Hand on what has come, as far as it is complete and wanted."""
        try:
            is_over = self._decrypt_bytes() if self._buffered is None else self._decrypt_into(self._buffered)
        except ssl.SSLWantReadError:
            is_over = self._has_eof  # in the middle of a record
        except ssl.SSLError as error:
            return self._fail(RefusedError(describe(error)))
        if is_over or (self._has_eof and not self._has_more):
            self._end()
            self._raw.close()
        return None

    def _decrypt_into(self, protocol: asyncio.BufferedProtocol) -> bool:
        """Return whether the other side has closed."""
        while self._may_hand_on:
            buffer = cast(memoryview, protocol.get_buffer(-1))
            filled, is_over = self._fill(buffer)
            if filled:
                protocol.buffer_updated(filled)
            if is_over or not filled:
                return is_over
            if filled == len(buffer):
                # Whoever waited for it can give the next buffer first.
                asyncio.get_running_loop().call_soon(self._decrypt)
                return False
        return False

    def _fill(self, buffer: memoryview) -> tuple[int, bool]:
        """Fill a buffer with what is complete; returns how far, and whether the other side has closed."""
        assert self._tls is not None
        read, incoming, pending = self._read, self._incoming, self._tls.pending
        filled, size = 0, len(buffer)
        try:
            while filled < size and (incoming.pending or pending()):
                count = cast(int, read(size - filled, buffer[filled:] if filled else buffer))
                if not count:
                    return filled, True
                filled += count
        except ssl.SSLWantReadError:
            return filled, self._has_eof  # the rest of a record is still to come, or never will
        return filled, False

    def _decrypt_bytes(self) -> bool:
        """Return whether the other side has closed."""
        parts: list[bytes] = []
        try:
            while self._may_hand_on:
                part = cast(bytes, self._read(_RECORD_BYTES))
                if not part:
                    return True
                parts.append(part)
        finally:
            if parts:
                self._protocol.data_received(b"".join(parts))
        return False

    @property
    def _may_hand_on(self) -> bool:
        return self._is_reading and not self._has_ended and not self._raw.is_closing() and self._has_more

    @property
    def _has_more(self) -> bool:
        assert self._tls is not None
        return bool(self._incoming.pending or self._tls.pending())

    def _end(self) -> None:
        """Tell the protocol that the other side has closed."""
        if not self._has_ended:
            self._has_ended = True
            self._protocol.eof_received()

    def _fail(self, error: RefusedError) -> None:
        self._refusal = self._refusal or error
        self._raw.close()


def protocol_of(
    protocol: asyncio.BufferedProtocol, terms: Terms | None, *, is_server: bool
) -> asyncio.BufferedProtocol:
    """Return the protocol for a TCP connection that `protocol` uses on these terms; `None` means plain TCP."""
    return protocol if terms is None else TlsTransport(terms, protocol, is_server=is_server)


def describe(error: ssl.SSLError) -> str:
    """Return a text about a failure of TLS, for people."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    return f"TLS failed: {(error.reason or str(error)).lower().replace('_', ' ')}"
