"""Tokens: their texts, their fingerprints, and what must never show."""

from __future__ import annotations

import copy
import pickle

import pytest

from bringup.transport.security.token import Token

TEXT = "0123456789abcdef" * 4


def test_a_token_is_read_as_it_was_written() -> None:
    token = Token.random()
    assert Token.parse(f"  {token.to_text().upper()}\n") == token
    assert Token.parse(token.to_text()).fingerprint == token.fingerprint


def test_two_tokens_differ() -> None:
    first, second = Token.random(), Token.random()
    assert first != second
    assert len({first, second, Token.parse(first.to_text())}) == 2


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "but 0 characters"),
        (TEXT[:-1], "but 63 characters"),
        (TEXT + "0", "but 65 characters"),
        (TEXT[:-1] + "g", "other than hexadecimal digits"),
        (TEXT[:-1] + "\N{ARABIC-INDIC DIGIT ONE}", "other than hexadecimal digits"),
        (TEXT[:32] + "\n" + TEXT[33:], "other than hexadecimal digits"),
    ],
)
def test_what_is_no_token_is_refused_without_its_text(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as refused:
        Token.parse(text)
    assert text[:16] not in str(refused.value) or not text


def test_keys_of_different_purposes_differ() -> None:
    token = Token.parse(TEXT)
    assert token.derive("one", 32) != token.derive("another", 32)
    assert token.derive("one", 32) == Token.parse(TEXT).derive("one", 32)
    assert len(token.derive("one", 48)) == 48


def test_a_token_does_not_show_its_secret() -> None:
    token = Token.parse(TEXT)
    assert repr(token) == f"<Token {token.fingerprint}>" == str(token)
    assert TEXT not in f"{token!r} {token} {vars(type(token))} {[token]}"
    assert token.fingerprint not in TEXT


@pytest.mark.parametrize("leak", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_token_is_not_to_be_pickled_or_copied(leak: object) -> None:
    with pytest.raises(TypeError, match="is secret"):
        leak(Token.random())  # type: ignore[operator]
