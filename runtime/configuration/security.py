"""The secret of a job, chosen from the places that a token or certificates can be given in."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...errors import BringupError, ConfigurationError
from ...transport.addresses import Address
from ...transport.security.key_files import KeyFiles
from ...transport.security.token import Token
from .handed_tokens import TOKEN_FD, HandedTokens, descriptor_setting
from .job import JobSpec
from .options import SECURITY_OPTIONS, option_settings
from .settings import Origin, Setting, as_flag, as_text
from .token_files import UnfitTokenError, read_token_file, token_descriptor
from .user_token import user_token, user_token_path

_FILES = ("tls_ca", "tls_cert", "tls_key")
_URI_PREFIX = "tls_uri_prefix"

SECURITY_VARIABLES = frozenset({TOKEN_FD, *(f"BRINGUP_{name.upper()}" for name in SECURITY_OPTIONS)})
"""The variables that this is about."""

REMEDIES = (
    "Give all clients one token: `bringup token --file PATH` makes it, and BRINGUP_TOKEN_FILE=PATH or token_file=PATH "
    "has each of them use it. Or give each a certificate of your own: tls_ca, tls_cert and tls_key. Or, on a network "
    "that you trust, pass insecure=True or set BRINGUP_INSECURE=1. docs/how-to/security.md shows how Slurm, MPI and "
    "Kubernetes hand a token over."
)
"""Of a job that leaves this machine without any of them."""


@dataclass(frozen=True, slots=True)
class Security:
    """The secret by which the clients of a job know each other.

    Attributes:
        secret: the token, or the files of the user's own certificates; `None` for plain TCP.
        source: the place that it comes from, for errors and the log.
    """

    secret: Token | KeyFiles | None
    source: str

    @property
    def shown(self) -> str:
        """The secret in words, without it."""
        if isinstance(self.secret, Token):
            return f"mutual TLS, token with fingerprint {self.secret.fingerprint}"
        return "none: plain TCP" if self.secret is None else f"mutual TLS, certificate {self.secret.cert}"


def security_of(
    job: JobSpec,
    bind_address: str | None,
    settings: Mapping[str, Setting],
    environ: Mapping[str, str],
    handed: HandedTokens,
) -> Security:
    """Return the secret of a job; see `find_security`."""
    if job.is_alone:
        return Security(None, "a job of one client")
    remote = ""
    if not job.is_loopback:
        remote = f"the job leaves this machine (coordinator {job.coordinator_address}, from {job.source})"
    elif bind_address is not None and not Address(bind_address, 1).is_loopback:
        remote = (
            f"bind_address={bind_address!r} (BRINGUP_BIND_ADDRESS) opens the ports of this client to the network, "
            "though all addresses of the job are on this machine. Leave it out, or give '127.0.0.1'. If you mean it"
        )
    return find_security(settings, environ, handed, remote=remote)


def find_security(
    settings: Mapping[str, Setting], environ: Mapping[str, str], handed: HandedTokens, *, remote: str
) -> Security:
    """Return the secret of a job of several clients.

    Of tokens, arguments come first, then a descriptor, a file, and the text in a variable. Certificates and tokens
    exclude each other, but for those given as arguments, which win over the environment as all arguments do.

    Args:
        settings: the options as given.
        environ: the environment.
        handed: the tokens that this process was handed.
        remote: the reason why the job needs a secret that other machines have; empty for a job on this machine.

    Raises:
        ConfigurationError: there is none, one of them cannot be used, or they contradict each other.
    """
    tokens = _given_tokens(settings, environ, handed)
    files = [settings[name] for name in (*_FILES, _URI_PREFIX) if settings[name].is_set]
    if as_flag(settings["insecure"]):
        _refuse_both(settings["insecure"], "asks for no authentication", [*tokens, *files])
        return Security(None, str(settings["insecure"]))
    if files and tokens and _is_argument(files[0]) == _is_argument(tokens[0]):
        _refuse_both(files[0], "asks for certificates of your own", tokens)
    if files and (not tokens or _is_argument(files[0])):
        return Security(_key_files(settings, files), ", ".join(map(str, files)))
    if tokens:
        return Security(_token(tokens[0], handed), str(tokens[0]) if not tokens[0].secret else tokens[0].where)
    if remote:
        raise ConfigurationError(
            f"{remote}: without a secret, its clients cannot tell each other from strangers. {REMEDIES}"
        )
    return Security(user_token(environ), f"the token of this user, {user_token_path(environ)}")


def token_for_clients(environ: Mapping[str, str], handed: HandedTokens) -> int | None:
    """Return a descriptor with a token for the clients that this process starts: what it was handed, or a new one.

    `None` where the environment names a file with the token, or certificates, or asks for none: the clients read it.

    Raises:
        ConfigurationError: what this process was handed is no token.
        BringupError: there can be no descriptor.
    """
    settings = option_settings(None, {}, environ)
    tokens = _given_tokens(settings, environ, handed)
    if not tokens and (as_flag(settings["insecure"]) or any(settings[name].is_set for name in _FILES)):
        return None
    if tokens and tokens[0] is settings["token_file"]:
        return None
    try:
        return token_descriptor(_token(tokens[0], handed) if tokens else Token.random())
    except OSError as error:
        raise BringupError(f"a token cannot be handed to the clients: no file in memory: {error.strerror}") from None


def _given_tokens(settings: Mapping[str, Setting], environ: Mapping[str, str], handed: HandedTokens) -> list[Setting]:
    """Return the places where a token is given, the one that counts first.

    Raises:
        ConfigurationError: two are given as arguments.
    """
    in_text, in_file = settings["token"], settings["token_file"]
    arguments = [setting for setting in (in_text, in_file) if setting.is_set and _is_argument(setting)]
    if len(arguments) > 1:
        raise in_text.error(f"is given together with {in_file}: leave out one of the two")
    text = in_text if in_text.origin is Origin.ENVIRONMENT else handed.of_variable
    return [
        *arguments,
        *(
            setting
            for setting in (descriptor_setting(environ), in_file, text)
            if setting.is_set and not _is_argument(setting)
        ),
    ]


def _is_argument(setting: Setting) -> bool:
    return setting.origin in (Origin.ARGUMENT, Origin.OPTIONS)


def _refuse_both(setting: Setting, wish: str, others: Iterable[Setting]) -> None:
    for other in others:
        hint = ""
        if other.name == TOKEN_FD:
            hint = (
                ". `bringup run` hands a token to each client, unless BRINGUP_INSECURE or BRINGUP_TLS_CA is set for it"
            )
        raise setting.error(f"{wish}, and {other} contradicts it: leave out one of the two{hint}")


def _token(setting: Setting, handed: HandedTokens) -> Token:
    if setting.name == TOKEN_FD:
        return handed.of_descriptor(setting)
    return _of_file(setting) if setting.name.lower().endswith("token_file") else _of_text(setting)


def _of_text(setting: Setting) -> Token:
    try:
        return Token.parse(as_text(setting))
    except ValueError as error:
        complaint = str(error)
    # Not in the handler: the frames of its error hold the text.
    raise setting.error(f"{complaint}: give what `bringup token` prints")


def _of_file(setting: Setting) -> Token:
    path = as_text(setting)
    try:
        return read_token_file(path)
    except UnfitTokenError as error:
        raise setting.error(str(error)) from None
    except OSError as error:
        raise setting.error(
            f"cannot be read: {error.strerror}{_relative_to(path)}. `bringup token --file PATH` makes a file with a "
            "token, of which each client needs the same"
        ) from None


def _relative_to(path: str) -> str:
    """Return the folder that a relative path is meant in: a launcher may start its clients in another one."""
    if os.path.isabs(path):
        return ""
    try:
        return f" in {os.getcwd()}"
    except OSError:
        return " in a folder that is gone"


def _key_files(settings: Mapping[str, Setting], files: list[Setting]) -> KeyFiles:
    missing = [name for name in _FILES if not settings[name].is_set]
    if missing:
        raise files[0].error(
            f"is given without {' and '.join(missing)}: certificates of your own take all of {', '.join(_FILES)}"
        )
    ca, cert, key = (Path(as_text(settings[name])) for name in _FILES)
    prefix = settings[_URI_PREFIX]
    return KeyFiles(ca, cert, key, as_text(prefix) if prefix.is_set else "")
