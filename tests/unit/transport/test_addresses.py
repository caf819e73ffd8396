"""Addresses as users write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.transport.addresses import Address, parse_host


@pytest.mark.parametrize(
    ("text", "host", "port", "written"),
    [
        ("localhost:10000", "localhost", 10000, "localhost:10000"),
        ("localhost:010000", "localhost", 10000, "localhost:10000"),
        ("h0:1", "h0", 1, "h0:1"),
        ("h0:65535", "h0", 65535, "h0:65535"),
        ("Node-7.Example.COM:9000", "node-7.example.com", 9000, "node-7.example.com:9000"),
        ("node_7.example.com.:9000", "node_7.example.com.", 9000, "node_7.example.com.:9000"),
        ("xn--bcher-kva.example:1", "xn--bcher-kva.example", 1, "xn--bcher-kva.example:1"),
        ("10.0.0.1:1234", "10.0.0.1", 1234, "10.0.0.1:1234"),
        ("[::1]:9000", "::1", 9000, "[::1]:9000"),
        ("[2001:DB8:0::01]:9000", "2001:db8::1", 9000, "[2001:db8::1]:9000"),
        ("[::ffff:127.0.0.1]:9000", "127.0.0.1", 9000, "127.0.0.1:9000"),
        ("[::ffff:7f00:1]:9000", "127.0.0.1", 9000, "127.0.0.1:9000"),
        ("[fe80::1%eth0]:9000", "fe80::1%eth0", 9000, "[fe80::1%eth0]:9000"),
        ("0.0.0.0:80", "0.0.0.0", 80, "0.0.0.0:80"),
    ],
)
def test_an_address_is_read_and_written_in_one_way(text: str, host: str, port: int, written: str) -> None:
    address = Address.parse(text)
    assert address == Address(host=host, port=port)
    assert str(address) == written
    assert Address.parse(written) == address


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("localhost", "has no port"),
        ("localhost:", "has no port"),
        ("10.0.0.1", "has no port"),
        ("[::1]", "has no port"),
        ("[::1]:", "has no port"),
        (":9000", "has no host"),
        (":", "has no host"),
        ("h:0", "not in 1..65535"),
        ("h:65536", "not in 1..65535"),
        ("h:99999999999999999999", "not in 1..65535"),
        ("h:-1", "not a number"),
        ("h:+80", "not a number"),
        ("h:8_0", "not a number"),
        ("h:80.0", "not a number"),
        ("h:http", "not a number"),
        ("h:notaport", "'notaport', which is not a number"),
        ("::1:9000", "must stand in brackets"),
        ("2001:db8::1", "must stand in brackets"),
        ("a:b:1", "must stand in brackets"),
        ("[::1:9000", "no closing one"),
        ("[::1]9000", "after the bracket"),
        ("[::1]x:9000", "after the bracket"),
        ("[localhost]:9000", "not an IPv6 address"),
        ("[127.0.0.1]:9000", "not an IPv6 address"),
        ("[]:9000", "not an IPv6 address"),
        ("[fe80::1%]:9000", "not an IPv6 address"),
        ("[fe80::1%a/b]:9000", "not an IPv6 address"),
        ("[fe80::1%a~b]:9000", "zone 'a~b'"),
        (" h:1", "white space"),
        ("h:1\n", "white space"),
        ("a b:1", "white space"),
        ("h: 1", "white space"),
        ("grpc://h:1", "leave out 'grpc://'"),
        ("bücher.example:1", "xn-- form"),
        ("h:\u0661", "beyond ASCII"),
        ("1.2.3:1", "not an IPv4 address"),
        ("256.0.0.1:1", "not an IPv4 address"),
        ("010.0.0.1:1", "not an IPv4 address"),
        ("127.1:1", "not an IPv4 address"),
        ("5:1", "not an IPv4 address"),
        ("a..b:1", "not a host name"),
        (".a:1", "not a host name"),
        ("-a:1", "'-a'"),
        ("a-:1", "'a-'"),
        ("a/b:1", "'a/b'"),
        ("user@h:1", "'user@h'"),
        ("a\x00b:1", "not a host name"),
        (f"{'a' * 64}:1", "not a host name"),
        (f"{'a.' * 127}a:1", "at most 253"),
        ("a" * 100_000, "100000 characters long"),
        (f"h:{'0' * 5000}80", "5004 characters long"),
    ],
)
def test_what_is_no_address_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError) as caught:
        Address.parse(text)
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 400


@given(st.text())
def test_any_text_is_an_address_or_a_value_error(text: str) -> None:
    try:
        address = Address.parse(text)
    except ValueError:
        return
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("localhost.", True),
        ("a.b.localhost", True),
        ("127.0.0.1", True),
        ("127.255.255.254", True),
        ("::1", True),
        ("::ffff:127.0.0.2", True),
        ("notlocalhost", False),
        ("localhost.example.com", False),
        ("128.0.0.1", False),
        ("10.0.0.1", False),
        ("0.0.0.0", False),
        ("::", False),
        ("::2", False),
        ("::ffff:10.0.0.1", False),
        ("127.0.0.1.example.com", False),
        ("0x7f000001", False),
    ],
)
def test_loopback_is_judged_by_the_text(host: str, loopback: bool) -> None:
    assert Address(host=host, port=1).is_loopback is loopback


@pytest.mark.parametrize(
    ("host", "wildcard"),
    [("0.0.0.0", True), ("::", True), ("::ffff:0.0.0.0", True), ("::1", False), ("10.0.0.1", False), ("h", False)],
)
def test_wildcards_are_known(host: str, wildcard: bool) -> None:
    assert Address(host=host, port=1).is_wildcard is wildcard


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("Host", "host"),
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "::1"),
        ("[::1]", "::1"),
        ("2001:DB8::0", "2001:db8::"),
        ("0.0.0.0", "0.0.0.0"),
    ],
)
def test_a_host_alone(text: str, host: str) -> None:
    assert parse_host(text) == host


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("h:80", "has a port"),
        ("[::1]:80", "not an IPv6 address"),
        ("", "empty"),
        ("a b", "white space"),
        ("1.2.3", "not an IPv4 address"),
    ],
)
def test_what_is_no_host_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_host(text)


@pytest.mark.parametrize("text", ["127.0.0.1:1", "10.0.0.1:1", "[::1]:1", "[fe80::1%eth0]:1"])
def test_an_ip_address_needs_no_resolver(text: str) -> None:
    assert Address.parse(text).is_literal


@pytest.mark.parametrize("text", ["localhost:1", "h0:1", "127.example.com:1", "10.0.0.1.example.com:1"])
def test_a_name_needs_a_resolver_and_is_not_judged_by_its_digits(text: str) -> None:
    assert not Address.parse(text).is_literal
    assert Address.parse(text).is_loopback == text.startswith("localhost")
