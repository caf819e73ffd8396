"""All packets of a job of real processes: neither the token nor what the clients tell each other is in them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from bringup.testing.job import LocalJob

from ..fuzz.strangers import ports_of
from ..lib.sniffer import Sniffer

TOKEN = "c0ffee" * 10 + "c0ff"
VALUE = "what only the clients of this job are to know"
NUMBERS = [0x5EC12E7, 0x5EC12E8]


@contextlib.contextmanager
def sniffed(**environment: str) -> Iterator[tuple[Sniffer, set[int]]]:
    """Run a job, and yield what was seen of it, and its ports."""
    try:
        sniffer = Sniffer().__enter__()
    except PermissionError:
        pytest.skip("packets are not for everybody to see (CAP_NET_RAW)")
    with contextlib.ExitStack() as stack:
        stack.push(sniffer)
        job = stack.enter_context(LocalJob(3, environment=environment))
        job.start()
        job.initialize(device_type="SIM")
        ports = {port for client in job.clients.values() for port in ports_of(client.process.pid)}
        job.clients[1].call("set_key", key="a/key", value=VALUE).value()
        assert job.clients[2].call("get_key", key="a/key").value() == VALUE
        for call in job.call("all_reduce", array=NUMBERS):
            assert call.value() == [3 * number for number in NUMBERS]
        for call in job.call("shutdown"):
            call.value()
    if not sniffer.is_complete:
        pytest.skip("the kernel had no room for all packets: too much else happens on loopback")
    yield sniffer, ports


def secrets() -> dict[str, bytes]:
    """Return what is looked for, as it would be on the wire."""
    return {
        "token": TOKEN.encode(),
        "token in bytes": bytes.fromhex(TOKEN),
        "value": VALUE.encode(),
        "key": b"a/key",
        "array": b"".join(number.to_bytes(8, "little") for number in NUMBERS),
        "protocol": b"bringup\x01",
    }


def test_a_sniffer_sees_nothing() -> None:
    with sniffed(BRINGUP_TOKEN=TOKEN) as (sniffer, ports):
        assert sum(map(len, sniffer.of(ports))) > 10_000
        assert [name for name, secret in secrets().items() if sniffer.has_seen(secret, ports)] == []


def test_a_sniffer_of_an_insecure_job_sees_all() -> None:
    """Or the test above would prove nothing."""
    with sniffed(BRINGUP_INSECURE="1") as (sniffer, ports):
        seen = [name for name, secret in secrets().items() if sniffer.has_seen(secret, ports)]
        assert seen == ["value", "key", "array", "protocol"]
