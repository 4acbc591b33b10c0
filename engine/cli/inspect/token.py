"""Command `evenlane token`: makes a token for the HTTP API of nodes."""

import re
import sys
from typing import Annotated

import typer

from evenlane.engine.cli.options import CommonOptions, common
from evenlane.engine.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The token's name, for people.")]
_Scopes = Annotated[
    list[str] | None, typer.Option("--scope", metavar="SCOPE", help="read, put or change; may be repeated.")
]
_Projects = Annotated[
    list[str] | None,
    typer.Option("--project", metavar="PATTERN", help="A project, or a pattern such as shop-*; may be repeated."),
]


@common
def token(_given: CommonOptions, name: _Name, *, scope: _Scopes = None, project: _Projects = None) -> None:
    """Make a token for HTTP: print its entry for http_tokens_file, and the token itself on stderr.

    The entry has only a hash, so the token is shown this once. Contacts nothing.

    Example:
      evenlane token shop --scope put --project shop-eu >> http-tokens.toml
      evenlane token dashboard --scope read >> http-tokens.toml
    """
    from hashlib import sha256
    from secrets import token_urlsafe

    import msgspec

    from evenlane.engine.http.server.scopes import Scope, check_pattern

    if not _NAME.fullmatch(name):
        raise ConfigError(f"name {name[:80]!r} is not valid: 1 to 64 letters, digits, '_' or '-'")
    for each in scope or ():
        if each not in {*Scope}:
            raise ConfigError(f"--scope: {each[:80]!r} is not a scope: they are {', '.join(Scope)}")
    if not scope:
        raise ConfigError(f"--scope is missing: a token has one or more of {', '.join(Scope)}")
    for pattern in project or ():
        try:
            check_pattern(pattern)
        except ValueError as error:
            raise ConfigError(f"--project: {error}") from None
    secret = token_urlsafe(32)
    lists = {"scopes": scope, **({"projects": project} if project else {})}
    entry = [f'sha256 = "{sha256(secret.encode()).hexdigest()}"']
    entry += [f"{key} = {msgspec.json.encode(values).decode()}" for key, values in lists.items()]
    typer.echo("\n".join([f"[{name}]", *entry]) + "\n")
    print(f"the token of {name}, which is shown only now: {secret}", file=sys.stderr)  # noqa: T201
