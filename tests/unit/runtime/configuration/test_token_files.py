"""Files and descriptors with a token: what is read, what is refused, and with which reason."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from bringup.runtime.configuration import token_files
from bringup.runtime.configuration.token_files import (
    UnfitTokenError,
    read_token_descriptor,
    read_token_file,
    token_descriptor,
    write_token_file,
)
from bringup.transport.security.token import Token

TEXT = "0123456789abcdef" * 4
OTHER_USER = 4242


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.touch(0o600)
    path.write_text(f"{TEXT}\n")
    return path


def refusal(path: Path) -> str:
    with pytest.raises(UnfitTokenError) as caught:
        read_token_file(path)
    assert TEXT[:16] not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_file_of_this_user_alone_is_read(path: Path, mode: int) -> None:
    path.chmod(mode)
    assert read_token_file(path) == Token.parse(TEXT)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o602, 0o644, 0o700 | 0o001])
def test_a_file_that_others_can_use_is_refused(path: Path, mode: int) -> None:
    path.chmod(mode)
    assert f"is open to other users (mode {mode:04o})" in refusal(path)


def test_a_file_of_another_user_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: OTHER_USER)
    assert f"belongs to user {path.stat().st_uid}, and this process is user {OTHER_USER}'s" in refusal(path)


def test_a_symbolic_link_is_refused_with_the_way_out(path: Path) -> None:
    link = path.with_name("link")
    link.symlink_to(path)
    assert "is a symbolic link" in refusal(link)
    assert "BRINGUP_TOKEN_FD=3 COMMAND 3<PATH" in refusal(link)


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    assert "is a pipe, and no regular file" in refusal(tmp_path / "pipe")
    assert "is a folder, and no regular file" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "but 0 characters"),
        (TEXT[1:].encode(), "but 63 characters"),
        (b"x" + TEXT[1:].encode(), "other than hexadecimal digits"),
        (b"\xff" * 64, "other than hexadecimal digits"),
        (TEXT.encode() + b" " * 1000, "more than 256 bytes"),
    ],
)
def test_what_holds_no_token_is_refused(path: Path, content: bytes, complaint: str) -> None:
    path.write_bytes(content)
    assert complaint in refusal(path)


def test_what_is_no_path_is_refused() -> None:
    assert "is no path of a file" in refusal(Path("a\0b"))


def test_a_file_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_token_file(tmp_path / "none")


def test_a_token_is_written_for_its_owner_alone_and_over_nothing(tmp_path: Path) -> None:
    path, token = tmp_path / "token", Token.random()
    old = os.umask(0)
    try:
        write_token_file(path, token)
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_token_file(path) == token
    with pytest.raises(FileExistsError):
        write_token_file(path, Token.random())
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError):
        write_token_file(tmp_path / "link", token)
    assert read_token_file(path) == token


def test_nothing_is_left_of_a_file_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_token_file(tmp_path / "token", Token.random())
    assert not list(tmp_path.iterdir())


# Descriptors.


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for descriptor in (reading, writing):
        try:
            os.close(descriptor)
        except OSError:
            pass  # the test has


def test_the_clients_of_a_launcher_read_one_file_in_memory_each_from_its_start() -> None:
    token = Token.random()
    descriptor = token_descriptor(token)
    try:
        again = os.dup(descriptor)
        assert read_token_descriptor(descriptor) == read_token_descriptor(again) == token
        assert not os.get_inheritable(descriptor)
        os.close(again)
    finally:
        os.close(descriptor)


def test_an_empty_pipe_holds_no_token(pipe: tuple[int, int]) -> None:
    os.close(pipe[1])
    with pytest.raises(UnfitTokenError, match="but 0 characters"):
        read_token_descriptor(pipe[0])


@pytest.mark.parametrize("pieces", [[TEXT], [TEXT[:10], TEXT[10:], "\n"]])
def test_a_pipe_is_read_to_its_end(pipe: tuple[int, int], pieces: list[str]) -> None:
    for piece in pieces:
        os.write(pipe[1], piece.encode())
    os.close(pipe[1])
    assert read_token_descriptor(pipe[0]) == Token.parse(TEXT)


def test_a_pipe_whose_writer_stays_is_not_waited_for_for_ever(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_files, "_PIPE_TIMEOUT", 0.01)
    os.write(pipe[1], TEXT.encode())
    with pytest.raises(UnfitTokenError, match="nobody has written to and closed"):
        read_token_descriptor(pipe[0])


def test_a_pipe_with_more_than_a_token_is_refused_before_its_end(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"x" * 10_000)
    with pytest.raises(UnfitTokenError, match="more than 256 bytes"):
        read_token_descriptor(pipe[0])


def test_a_descriptor_of_something_else_is_refused() -> None:
    one, other = socket.socketpair()
    with one, other, pytest.raises(UnfitTokenError, match="is a socket, and no file or pipe"):
        read_token_descriptor(one.fileno())


def test_a_closed_descriptor_is_an_os_error(pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    with pytest.raises(OSError, match="Bad file descriptor"):
        read_token_descriptor(pipe[0])
