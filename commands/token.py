"""`bringup token`: makes the secret of a job."""

from __future__ import annotations

import click

from ..errors import ConfigurationError
from ..runtime.configuration.token_files import write_token_file
from ..transport.security.token import Token


@click.command()
@click.option(
    "--file", "path", type=click.Path(dir_okay=False), metavar="PATH", help="Write it to a new file of mode 0600."
)
def token(path: str | None) -> None:
    """Print a new token, the secret that all clients of a job share: 64 hexadecimal digits.

    Better have it written to a file, whose path is not secret: BRINGUP_TOKEN_FILE=PATH has a client use it. Its
    fingerprint is printed then, which errors and the log have in its place.
    """
    made = Token.random()
    if path is None:
        click.echo(made.to_text())
        return
    try:
        write_token_file(path, made)
    except FileExistsError:
        raise ConfigurationError(f"--file={path!r} exists: the token in it may be in use. Give another name.") from None
    except OSError as error:
        raise ConfigurationError(f"--file={path!r} cannot be written: {error.strerror}") from None
    click.echo(f"{path}: a new token, with fingerprint {made.fingerprint}")
