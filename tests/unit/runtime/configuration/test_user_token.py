"""The token of a user for jobs on one machine: where it is, how it comes to be, and what is not trusted."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from bringup.errors import ConfigurationError
from bringup.runtime.configuration import token_files
from bringup.runtime.configuration import user_token as module
from bringup.runtime.configuration.token_files import read_token_file
from bringup.runtime.configuration.user_token import user_token, user_token_path

PROCESSES = 100
OTHER_USER = 4242


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "runtime"
    folder.mkdir(0o700)
    return {"XDG_RUNTIME_DIR": str(folder)}


def refusal(environ: dict[str, str]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        user_token(environ)
    assert "BRINGUP_TOKEN_FILE=PATH" in str(caught.value)
    return str(caught.value)


def test_it_is_made_at_first_use_and_stays(environ: dict[str, str]) -> None:
    token = user_token(environ)
    path = user_token_path(environ)
    assert path == Path(environ["XDG_RUNTIME_DIR"], "bringup", "token")
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)
    assert user_token(environ) == token == read_token_file(path)
    assert [one.name for one in path.parent.iterdir()] == ["token"]


def test_a_hundred_processes_at_once_make_one(environ: dict[str, str]) -> None:
    gate, opener = os.pipe()
    answers, answer = os.pipe()
    children = []
    for _ in range(PROCESSES):
        if (pid := os.fork()) == 0:
            os.close(opener)
            os.read(gate, 1)
            os.write(answer, user_token(environ).to_text().encode() + b"\n")
            os._exit(0)
        children.append(pid)
    os.close(opener)
    os.close(answer)
    with open(answers, "rb") as lines:
        texts = lines.read().split()
    os.close(gate)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0] * PROCESSES
    assert texts == [user_token(environ).to_text().encode()] * PROCESSES
    assert [one.name for one in user_token_path(environ).parent.iterdir()] == ["token"]


def test_without_a_runtime_folder_there_is_one_for_each_user_among_the_temporary_files(tmp_path: Path) -> None:
    (tmp_path / "system").mkdir()
    expected = tmp_path / "common" / f"bringup-{os.geteuid()}" / "token"
    for environ in (
        {},
        {"XDG_RUNTIME_DIR": ""},
        {"XDG_RUNTIME_DIR": "relative"},
        {"XDG_RUNTIME_DIR": "/none"},
        {"XDG_RUNTIME_DIR": "/a\0b"},
    ):
        assert user_token_path(environ, tmp_path / "system", tmp_path / "common") == expected


def test_the_runtime_folder_of_the_system_is_used_where_the_variable_is_not_set(tmp_path: Path) -> None:
    own = tmp_path / "system" / str(os.geteuid())
    own.mkdir(0o700, parents=True)
    assert user_token_path({}, tmp_path / "system", tmp_path) == own / "bringup" / "token"


def test_a_runtime_folder_of_another_user_is_passed_over(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: OTHER_USER)
    found = user_token_path(environ, tmp_path / "system", tmp_path)
    assert found == tmp_path / f"bringup-{OTHER_USER}" / "token"


def test_a_runtime_folder_that_others_may_write_to_is_passed_over(environ: dict[str, str], tmp_path: Path) -> None:
    os.chmod(environ["XDG_RUNTIME_DIR"], 0o777)
    assert user_token_path(environ, tmp_path / "system", tmp_path).parent.name == f"bringup-{os.geteuid()}"


def test_a_runtime_folder_that_cannot_be_written_to_is_passed_over_unless_the_token_is_there(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as on a file system that is read-only
    assert user_token_path(environ, tmp_path / "system", tmp_path).parent.name == f"bringup-{os.geteuid()}"
    (Path(environ["XDG_RUNTIME_DIR"]) / "bringup").mkdir(0o700)
    (Path(environ["XDG_RUNTIME_DIR"]) / "bringup" / "token").touch(0o600)
    assert user_token_path(environ, tmp_path / "system", tmp_path).parent.name == "bringup"


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda folder: folder.symlink_to(folder.parent), "is no folder"),
        (lambda folder: folder.touch(), "is no folder"),
        (lambda folder: (folder.mkdir(), folder.chmod(0o755)), "is open to other users (mode 0755, not 0700)"),
    ],
)
def test_a_folder_in_which_others_could_replace_it_is_refused(
    environ: dict[str, str], spoil: object, complaint: str
) -> None:
    spoil(Path(environ["XDG_RUNTIME_DIR"], "bringup"))  # type: ignore[operator]
    assert complaint in refusal(environ)


def test_a_folder_that_another_user_has_put_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"bringup-{OTHER_USER}").mkdir(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: OTHER_USER)
    monkeypatch.setattr(module, "user_token_path", lambda environ: user_token_path(environ, tmp_path, tmp_path))
    assert f"this process is user {OTHER_USER}'s" in refusal({})


def test_a_token_that_others_could_read_is_refused_with_the_way_out(environ: dict[str, str]) -> None:
    user_token(environ)
    user_token_path(environ).chmod(0o644)
    assert "is open to other users" in refusal(environ)
    assert f"{user_token_path(environ)}, the token of this user" in refusal(environ)


def test_a_token_that_is_spoilt_is_refused(environ: dict[str, str]) -> None:
    user_token(environ)
    user_token_path(environ).write_text("")
    assert "holds no token" in refusal(environ)
    assert "Remove the file" in refusal(environ)


def test_a_folder_without_room_is_named(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(token_files.os, "fsync", full)
    assert "cannot be read or made: No space left on device" in refusal(environ)
    assert not list(user_token_path(environ).parent.iterdir())
