"""The first bytes on a link."""

from __future__ import annotations

import dataclasses

import pytest

from bringup.transport.ports import LinkIdentity
from bringup.transport.tcp.handshake import (
    HELLO_BYTES,
    REPLY_BYTES,
    AcceptancePolicy,
    Hello,
    Purpose,
    Reply,
    Status,
    decode_hello,
    decode_reply,
)

OWN = LinkIdentity("ab" * 16, 1, 5, 2**64 - 1)
LEFT = LinkIdentity("ab" * 16, 1, 4, 17)
LEADER = LinkIdentity("ab" * 16, 1, 0, 19)
LEFTS = OWN, frozenset((LEFT, LEADER))
HELLO = Hello(Purpose.LINK, LEFT, OWN)


@pytest.mark.parametrize("purpose", Purpose)
def test_a_hello_survives(purpose: Purpose) -> None:
    hello = dataclasses.replace(HELLO, purpose=purpose)
    assert len(hello.encode()) == HELLO_BYTES
    assert decode_hello(hello.encode()) == hello


@pytest.mark.parametrize("status", Status)
def test_a_reply_survives(status: Status) -> None:
    reply = Reply(status, 2**64 - 1)
    assert len(reply.encode()) == REPLY_BYTES
    assert decode_reply(bytearray(reply.encode())) == reply


@pytest.mark.parametrize("purpose", [0, 4, 255])
def test_what_a_stranger_says_is_no_hello(purpose: int) -> None:
    data = HELLO.encode()
    assert decode_hello(b"GET / HTTP/1.1\r\n".ljust(HELLO_BYTES)) is None
    assert decode_hello(bytes(HELLO_BYTES)) is None
    assert decode_hello(data[:8] + bytes([purpose]) + data[9:]) is None


@pytest.mark.parametrize(
    "data", [bytes(REPLY_BYTES), b"bringup\x01\x00".ljust(REPLY_BYTES), b"bringup\x01\xff" + bytes(8)]
)
def test_what_a_stranger_answers_is_no_reply(data: bytes) -> None:
    assert decode_reply(data) is None


@pytest.mark.parametrize(
    ("sender", "receiver", "status"),
    [
        (LEFT, OWN, Status.ACCEPTED),
        (LEADER, OWN, Status.ACCEPTED),
        (dataclasses.replace(LEADER, incarnation=17), OWN, Status.OTHER_NEIGHBOUR),
        (dataclasses.replace(LEFT, job_id="cd" * 16), OWN, Status.OTHER_JOB),
        (dataclasses.replace(LEFT, epoch=2), OWN, Status.OTHER_JOB),
        (dataclasses.replace(LEFT, client_id=3), OWN, Status.OTHER_NEIGHBOUR),
        (dataclasses.replace(LEFT, incarnation=18), OWN, Status.OTHER_NEIGHBOUR),
        (LEFT, dataclasses.replace(OWN, client_id=6), Status.NOT_ADDRESSED),
        (LEFT, dataclasses.replace(OWN, incarnation=1), Status.NOT_ADDRESSED),
    ],
)
def test_only_the_left_neighbours_of_the_same_job_are_accepted(
    sender: LinkIdentity, receiver: LinkIdentity, status: Status
) -> None:
    policy = AcceptancePolicy(OWN.incarnation, has_services=True, expected=LEFTS)
    assert policy.judge(Hello(Purpose.LINK, sender, receiver)) is status


def test_before_the_job_has_formed_only_strangers_and_probes_are_answered() -> None:
    policy = AcceptancePolicy(OWN.incarnation, has_services=True)
    assert policy.judge(Hello(Purpose.PROBE, LEFT, OWN)) is Status.ALIVE
    assert policy.judge(Hello(Purpose.LINK, LEFT, dataclasses.replace(OWN, incarnation=1))) is Status.NOT_ADDRESSED
    assert policy.judge(Hello(Purpose.LINK, LEFT, OWN)) is None
    assert policy.judge(Hello(Purpose.SERVICES, LEFT, OWN)) is None


def test_one_link_of_each_neighbour_is_accepted_and_services_of_any_member() -> None:
    policy = AcceptancePolicy(OWN.incarnation, has_services=True, expected=LEFTS, linked={LEFT})
    other = dataclasses.replace(LEFT, client_id=3)
    assert policy.judge(Hello(Purpose.LINK, LEFT, OWN)) is Status.ALREADY_LINKED
    assert policy.judge(Hello(Purpose.LINK, LEADER, OWN)) is Status.ACCEPTED
    assert policy.judge(Hello(Purpose.SERVICES, other, OWN)) is Status.ACCEPTED
    policy.has_services = False
    assert policy.judge(Hello(Purpose.SERVICES, other, OWN)) is Status.NO_SERVICES
