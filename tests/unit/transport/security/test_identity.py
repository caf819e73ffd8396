"""The names in certificates."""

from __future__ import annotations

import pytest

from bringup.transport.security.identity import Subject, name_of, subject_of, subject_of_call


@pytest.mark.parametrize("client_id", [0, 7, 100_000, 4_294_967_295])
def test_the_name_of_a_client_states_its_id(client_id: int) -> None:
    assert Subject((name_of(client_id, "0123456789abcdef"),)).client_id == client_id


@pytest.mark.parametrize(
    "names",
    [
        [],
        [name_of(None, "0123456789abcdef")],
        ["localhost", "node-7.example.com"],
        ["client-.example"],
        ["client-01.example"],
        ["client--1.example"],
        ["client-1"],
        ["xclient-1.example"],
        ["client-12345678901.example"],
        ["client-\N{ARABIC-INDIC DIGIT ONE}.example"],
        ["client-1.example", "client-2.example"],
    ],
)
def test_other_names_state_none(names: list[str]) -> None:
    assert Subject(tuple(names)).client_id is None


def test_only_dns_names_of_a_certificate_count() -> None:
    others = (("URI", "client-1.example"), ("IP Address", "127.0.0.1"))
    assert subject_of({"subjectAltName": others}) == Subject((), ("client-1.example",))
    assert subject_of({"subjectAltName": (*others, ("DNS", "CLIENT-3.example"))}).client_id == 3
    assert subject_of({}) == Subject()


def test_grpc_tells_names_and_uris_apart() -> None:
    context = {"peer_dns": [b"client-3.example", b"\xff"], "peer_uri": [b"client-4.example"], "peer_ip": [b"127.0.0.1"]}
    assert subject_of_call(context) == Subject(("client-3.example", "\ufffd"), ("client-4.example",))
    assert subject_of_call({}) == Subject()


def test_a_name_states_the_fingerprint_of_its_token() -> None:
    assert Subject(("localhost", name_of(None, "0123456789abcdef"))).fingerprint == "0123456789abcdef"
    assert Subject(("client-1.example.com",)).fingerprint is None
