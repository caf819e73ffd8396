"""The names in certificates."""

from __future__ import annotations

import pytest

from bringup.transport.security.identity import client_id_in, client_id_of, name_of


@pytest.mark.parametrize("client_id", [0, 7, 100_000, 4_294_967_295])
def test_the_name_of_a_client_states_its_id(client_id: int) -> None:
    assert client_id_in([name_of(client_id, "0123456789abcdef")]) == client_id


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
    assert client_id_in(names) is None


def test_only_dns_names_of_a_certificate_count() -> None:
    others = (("URI", "client-1.example"), ("IP Address", "127.0.0.1"))
    assert client_id_of({"subjectAltName": others}) is None
    assert client_id_of({"subjectAltName": (*others, ("DNS", "CLIENT-3.example"))}) == 3
    assert client_id_of({}) is None
