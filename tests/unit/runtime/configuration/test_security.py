"""The secret of a job: its sources in their order, contradictions, and what is never shown."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bringup.sync
from bringup.errors import ConfigurationError
from bringup.runtime.configuration.handed_tokens import HandedTokens
from bringup.runtime.configuration.options import Options
from bringup.runtime.configuration.plan import Plan, make_plan
from bringup.runtime.configuration.request import Request
from bringup.runtime.configuration.security import token_for_clients
from bringup.runtime.configuration.token_files import read_token_descriptor, token_descriptor, write_token_file
from bringup.runtime.configuration.user_token import user_token
from bringup.transport.security.key_files import KeyFiles
from bringup.transport.security.token import Token

HERE = "127.0.0.1:9000,127.0.0.1:9001"
APART = "node-0:9000,node-1:9000"
TOKENS = {name: Token.random() for name in ("argument", "descriptor", "file", "variable")}
CANARY = "c0ffee" * 10 + "beef"


@pytest.fixture(autouse=True)
def _runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runtime").mkdir(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))


@pytest.fixture
def sources(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The variables of an environment with a token in every one."""
    write_token_file(tmp_path / "token", TOKENS["file"])
    descriptor = token_descriptor(TOKENS["descriptor"])
    yield {
        "BRINGUP_TOKEN_FD": str(descriptor),
        "BRINGUP_TOKEN_FILE": str(tmp_path / "token"),
        "BRINGUP_TOKEN": TOKENS["variable"].to_text(),
    }
    os.close(descriptor)


def plan(jobs: str, environ: dict[str, str] | None = None, options: Options | None = None, **overrides: Any) -> Plan:
    handed = HandedTokens()
    own = {"XDG_RUNTIME_DIR": os.environ["XDG_RUNTIME_DIR"]}
    request = Request("SIM", jobs=jobs, client_id=0, options=options, overrides=overrides)
    return make_plan(request, handed.take({**own, **(environ or {})}), handed=handed)


def refusal(jobs: str, environ: dict[str, str] | None = None, **overrides: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        plan(jobs, environ, **overrides)
    shown = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    assert CANARY not in shown.replace(repr(environ), "").replace(repr(overrides), "")
    return str(caught.value)


def test_the_sources_are_looked_at_in_their_order(sources: dict[str, str], tmp_path: Path) -> None:
    found = plan(APART, sources, token=TOKENS["argument"].to_text())
    assert (found.security, found.security_source) == (TOKENS["argument"], "argument token")
    found = plan(APART, sources, token_file=sources["BRINGUP_TOKEN_FILE"])
    assert (found.security, found.security_source) == (
        TOKENS["file"],
        f"token_file={sources['BRINGUP_TOKEN_FILE']!r} (argument)",
    )
    found = plan(APART, sources)
    assert found.security == TOKENS["descriptor"]
    assert found.security_source == f"BRINGUP_TOKEN_FD={sources.pop('BRINGUP_TOKEN_FD')!r}"
    found = plan(APART, sources)
    assert found.security == TOKENS["file"]
    assert found.security_source == f"BRINGUP_TOKEN_FILE={sources.pop('BRINGUP_TOKEN_FILE')!r}"
    found = plan(APART, sources)
    assert (found.security, found.security_source) == (TOKENS["variable"], "BRINGUP_TOKEN")


def test_options_give_a_token_as_arguments_do(sources: dict[str, str]) -> None:
    found = plan(APART, sources, Options(token=TOKENS["argument"].to_text()))
    assert (found.security, found.security_source) == (TOKENS["argument"], "options token")
    assert plan(APART, sources, Options(heartbeat_timeout=3.0)).security == TOKENS["descriptor"]


def test_a_job_on_this_machine_uses_the_token_of_this_user() -> None:
    found = plan(HERE)
    assert found.security == user_token(os.environ)
    assert found.security_source == f"the token of this user, {os.environ['XDG_RUNTIME_DIR']}/bringup/token"


def test_a_job_on_this_machine_may_have_a_token_of_its_own(sources: dict[str, str]) -> None:
    assert plan(HERE, sources).security == TOKENS["descriptor"]
    assert not list(Path(os.environ["XDG_RUNTIME_DIR"]).iterdir()), "none was made"


def test_a_job_of_one_client_has_none(sources: dict[str, str]) -> None:
    for jobs in ("node-0:9000", "127.0.0.1:9000"):
        assert plan(jobs, {**sources, "BRINGUP_TOKEN_FD": "no number"}).security is None
    assert not list(Path(os.environ["XDG_RUNTIME_DIR"]).iterdir()), "none was made"


def test_a_job_that_leaves_the_machine_without_a_secret_is_refused_with_the_remedies() -> None:
    text = refusal(APART)
    assert text.startswith("the job leaves this machine (coordinator node-0:9000, from arguments)")
    for remedy in ("`bringup token --file PATH`", "BRINGUP_TOKEN_FILE=PATH", "tls_ca, tls_cert and tls_key"):
        assert remedy in text
    assert "insecure=True or set BRINGUP_INSECURE=1" in text
    assert not list(Path(os.environ["XDG_RUNTIME_DIR"]).iterdir()), "none was made"


def test_ports_that_are_open_to_the_network_need_a_token_that_somebody_gave(sources: dict[str, str]) -> None:
    text = refusal(HERE, bind_address="0.0.0.0")
    assert "bind_address='0.0.0.0'" in text
    assert "Give all clients one token" in text
    assert plan(HERE, sources, bind_address="0.0.0.0").security == TOKENS["descriptor"]


def test_insecure_is_plain() -> None:
    for jobs in (HERE, APART):
        found = plan(jobs, insecure=True)
        assert (found.security, found.security_source) == (None, "insecure=True (argument)")
    assert plan(APART, {"BRINGUP_INSECURE": "1"}).security_source == "BRINGUP_INSECURE='1'"
    assert plan(HERE, {"BRINGUP_INSECURE": "1"}, insecure=False).security is not None


@pytest.mark.parametrize("variable", ["BRINGUP_TOKEN_FD", "BRINGUP_TOKEN_FILE", "BRINGUP_TOKEN"])
def test_insecure_overrides_no_token_in_silence(sources: dict[str, str], variable: str) -> None:
    text = refusal(APART, {variable: sources[variable]}, insecure=True)
    assert text.startswith("insecure=True (argument) asks for no authentication, and BRINGUP_TOKEN")
    assert TOKENS["variable"].to_text() not in text
    assert ("`bringup run` hands a token" in text) is (variable == "BRINGUP_TOKEN_FD")
    text = refusal(HERE, {"BRINGUP_INSECURE": "1"}, token=CANARY)
    assert text.startswith("BRINGUP_INSECURE='1' asks for no authentication, and token=<hidden> (argument)")


PKI = {"tls_ca": "/ca", "tls_cert": "/cert", "tls_key": "/key"}
PKI_VARIABLES = {f"BRINGUP_{name.upper()}": path for name, path in PKI.items()}


def test_certificates_of_the_user_take_the_place_of_a_token() -> None:
    found = plan(APART, PKI_VARIABLES)
    assert found.security == KeyFiles(Path("/ca"), Path("/cert"), Path("/key"))
    assert found.security_source == "BRINGUP_TLS_CA='/ca', BRINGUP_TLS_CERT='/cert', BRINGUP_TLS_KEY='/key'"
    found = plan(HERE, None, Options(**PKI), tls_uri_prefix="spiffe://here/")  # type: ignore[arg-type]
    assert found.security == KeyFiles(Path("/ca"), Path("/cert"), Path("/key"), "spiffe://here/")
    assert plan("127.0.0.1:9000", PKI_VARIABLES).security is None


@pytest.mark.parametrize("missing", PKI)
def test_certificates_of_the_user_take_three_files(missing: str) -> None:
    text = refusal(APART, **{name: path for name, path in PKI.items() if name != missing})
    assert f"is given without {missing}: certificates of your own take all of tls_ca, tls_cert, tls_key" in text
    assert "given without tls_ca and tls_cert and tls_key" in refusal(HERE, tls_uri_prefix="spiffe://here/")


def test_certificates_and_a_token_contradict_each_other_unless_one_is_an_argument(sources: dict[str, str]) -> None:
    for both in ({"environ": {**sources, **PKI_VARIABLES}}, {**PKI, "token": CANARY}):
        text = refusal(APART, **both)  # type: ignore[arg-type]
        assert "asks for certificates of your own, and" in text
    assert isinstance(plan(APART, sources, **PKI).security, KeyFiles)
    assert plan(APART, PKI_VARIABLES, token=CANARY).security == Token.parse(CANARY)
    assert "asks for no authentication, and tls_ca='/ca'" in refusal(APART, insecure=True, **PKI)


def test_two_tokens_as_arguments_contradict_each_other() -> None:
    assert "is given together with token_file='x' (argument)" in refusal(APART, token=CANARY, token_file="x")


@pytest.mark.parametrize(
    ("environ", "overrides", "complaint"),
    [
        ({}, {"token": CANARY[:-1]}, "token=<hidden> (argument) is not 64 hexadecimal digits, but 63 characters"),
        ({}, {"token": CANARY[:-1] + "x"}, "token=<hidden> (argument) has characters other than hexadecimal digits"),
        ({}, {"token": b"c0ffee" * 10}, "token=<hidden> (argument) is not text"),
        ({"BRINGUP_TOKEN": CANARY + "0"}, {}, "BRINGUP_TOKEN=<hidden> is not 64 hexadecimal digits, but 65 characters"),
        ({"BRINGUP_TOKEN_FILE": "/none"}, {}, "BRINGUP_TOKEN_FILE='/none' cannot be read: No such file or directory"),
        ({"BRINGUP_TOKEN_FD": "x"}, {}, "BRINGUP_TOKEN_FD='x' is not the number of an open descriptor"),
        ({"BRINGUP_TOKEN_FD": "-1"}, {}, "BRINGUP_TOKEN_FD='-1' must be >= 0"),
        ({"BRINGUP_TOKEN_FD": "99999"}, {}, "pass_fds=(99999,)"),
    ],
)
def test_a_token_that_cannot_be_used_is_refused_without_its_text(
    environ: dict[str, str], overrides: dict[str, Any], complaint: str
) -> None:
    assert complaint in refusal(APART, environ, **overrides)
    assert complaint in refusal(HERE, environ, **overrides), "the token of this user is no way out"


def test_a_relative_path_is_told_with_the_folder_it_is_meant_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = refusal(APART, {"BRINGUP_TOKEN_FILE": "none"})
    assert f"BRINGUP_TOKEN_FILE='none' cannot be read: No such file or directory in {tmp_path}. `bringup token" in text


def test_no_text_shows_the_token() -> None:
    found = plan(APART, {"BRINGUP_TOKEN": CANARY})
    request = Request("SIM", overrides={"token": CANARY})
    for shown in (found, request, found.options, found.backend):
        assert CANARY not in repr(shown)
    assert Token.parse(CANARY).fingerprint in repr(found)


def test_no_frame_of_the_blocking_call_shows_the_token() -> None:
    with pytest.raises(ConfigurationError, match="65 characters") as caught:
        bringup.sync.initialize("SIM", jobs=APART, client_id=0, token=CANARY + "0")
    assert caught.value.__traceback__ is not None
    caught.value.__traceback__ = caught.value.__traceback__.tb_next  # the frame of this test has it
    shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    assert "{'token': <hidden>}" in "".join(shown.format())
    assert CANARY not in "".join(shown.format())


def test_the_token_of_a_variable_is_taken_out_of_the_environment_and_kept() -> None:
    handed = HandedTokens()
    environ = {"BRINGUP_TOKEN": CANARY, "PATH": "/bin"}
    assert handed.take(environ) == {"PATH": "/bin"} == environ
    assert handed.take(environ) == {"PATH": "/bin"}
    assert make_plan(Request("SIM", jobs=APART, client_id=0), {}, handed=handed).security == Token.parse(CANARY)
    environ["BRINGUP_TOKEN"] = TOKENS["variable"].to_text()
    handed.take(environ)
    assert make_plan(Request("SIM", jobs=APART, client_id=0), {}, handed=handed).security == TOKENS["variable"]


def test_a_pipe_is_read_once_for_all_calls() -> None:
    handed = HandedTokens()
    reading, writing = os.pipe()
    os.write(writing, CANARY.encode())
    os.close(writing)
    request, environ = Request("SIM", jobs=APART, client_id=0), {"BRINGUP_TOKEN_FD": str(reading)}
    assert make_plan(request, environ, handed=handed).security == Token.parse(CANARY)
    os.close(reading)
    assert make_plan(request, environ, handed=handed).security == Token.parse(CANARY)


# What a launcher hands on.


def handed_on(environ: dict[str, str]) -> Token | None:
    handed = HandedTokens()
    if (descriptor := token_for_clients(handed.take(environ), handed)) is None:
        return None
    try:
        return read_token_descriptor(descriptor)
    finally:
        os.close(descriptor)


def test_a_launcher_makes_a_token_for_each_job() -> None:
    first, second = handed_on({}), handed_on({"BRINGUP_INSECURE": "0"})
    assert first is not None
    assert second is not None
    assert first != second


def test_a_launcher_hands_on_what_it_was_handed(sources: dict[str, str]) -> None:
    assert handed_on({"BRINGUP_TOKEN_FD": sources["BRINGUP_TOKEN_FD"]}) == TOKENS["descriptor"]
    assert handed_on({"BRINGUP_TOKEN": sources["BRINGUP_TOKEN"]}) == TOKENS["variable"]


@pytest.mark.parametrize("environ", [{"BRINGUP_TOKEN_FILE": "/x"}, {"BRINGUP_INSECURE": "1"}, {"BRINGUP_TLS_CA": "/x"}])
def test_a_launcher_leaves_to_the_clients_what_they_can_read_themselves(environ: dict[str, str]) -> None:
    assert handed_on(environ) is None


@pytest.mark.parametrize("name", ["BRINGUP_TOKEN_FILE", "BRINGUP_TOKEN_FD"])
def test_a_token_in_the_place_of_its_file_or_descriptor_is_not_shown(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name}=<hidden>") as caught:
        plan(APART, {name: CANARY})
    assert CANARY not in str(caught.value)
