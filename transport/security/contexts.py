"""Contexts of Python's `ssl` for mutual TLS 1.3."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from .certificates import KeyPair


def make_context(authorities: bytes, *, is_server: bool) -> ssl.SSLContext:
    """Return a context that demands a certificate of `authorities` (PEM) from the other side, whatever its name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Names are for `Terms.identify`: they are client ids, and not the hosts of addresses.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    # As gRPC has it: whoever the user names is trusted, where that is an authority below another, too.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=authorities.decode())
    if is_server:
        # Links last as long as the job: nobody resumes one by a ticket.
        context.num_tickets = 0
    else:
        context.set_alpn_protocols(["h2"])  # for gRPC, with which `diagnosis` shakes hands; links have none
    return context


def load_key_pair(context: ssl.SSLContext, pair: KeyPair) -> None:
    """Have the later connections of a context use `pair`.

    Raises:
        OSError: its parts do not fit together.
    """
    with _as_file(pair.key + pair.certificate) as path:
        context.load_cert_chain(path)


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """Yield the path of a file with `data` that nobody else can read: `ssl` takes keys from files only."""
    if hasattr(os, "memfd_create"):
        descriptor, folder = os.memfd_create("bringup"), None
        path = f"/proc/self/fd/{descriptor}"
    else:
        import tempfile  # it loads all of compression, which nobody needs where there are files in memory

        folder = tempfile.mkdtemp(prefix="bringup-")
        path = os.path.join(folder, "key")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        yield path
    finally:
        os.close(descriptor)
        if folder is not None:
            os.unlink(path)
            os.rmdir(folder)
