"""`evenlane put`: one message from the command line, or many from a file of JSON lines."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from engine.cli.frame import print_json
from engine.cli.options import Given, Json, common, factor, instant, seconds
from engine.errors import ConfigError

if TYPE_CHECKING:
    from engine.cli.put_file import Tally
    from engine.ports import Receipt
    from engine.producer import Put
    from engine.settings import Settings


class _Options(NamedTuple):
    """What can be said of one message, beside project and body."""

    priority: str | None
    key: str | None
    group: int | None
    delay: float | None
    due: int | None
    ttl: float | None
    id: str | None
    header: list[str] | None


@common
def put(
    given: Given,
    project: Annotated[str | None, typer.Argument(metavar="PROJECT", show_default=False)] = None,
    body: Annotated[
        str | None,
        typer.Argument(metavar="[BODY]", help="Left out: what comes on stdin.", show_default=False),
    ] = None,
    *,
    priority: Annotated[str | None, typer.Option(metavar="P", help="Left out: the middle one.")] = None,
    key: Annotated[str | None, typer.Option(metavar="K", help="Same key, same group.")] = None,
    group: Annotated[int | None, typer.Option(metavar="N", help="The group itself.")] = None,
    delay: Annotated[float | None, typer.Option(parser=seconds, metavar="DURATION", help="Due after so long.")] = None,
    due: Annotated[int | None, typer.Option(parser=instant, metavar="RFC3339", help="Due at that time.")] = None,
    ttl: Annotated[
        float | None,
        typer.Option(parser=seconds, metavar="DURATION", help="Expires so long after it is due."),
    ] = None,
    id: Annotated[str | None, typer.Option(metavar="ID", help="Stored once for a project.")] = None,  # noqa: A002
    header: Annotated[list[str] | None, typer.Option(metavar="K=V", help="May be given again.")] = None,
    file: Annotated[
        str | None, typer.Option("--file", metavar="FILE", help="JSON lines; - for stdin. No PROJECT then.")
    ] = None,
    admission: Annotated[
        float | None,
        typer.Option(parser=factor, metavar="X", help="With --file: of each topic at most X times its qps."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Put a message, or many from a file. It returns when the messages are stored.

    A line of the file: {"project", "body" or "body_base64", "priority", "key", "group", "delay", "due",
    "ttl", "id", "headers"}; all but project and body may be left out. A wrong line stops nothing and is told
    with its number. What was stored already under its id counts as a duplicate, not as put. Exit code 1 if
    anything was refused.

    Example:
      evenlane put acme '{"order": 1}' --priority high --key customer-7
      evenlane put acme --delay 10m < body.bin
      evenlane put --file messages.jsonl --json
      evenlane put --file night.jsonl --admission 0.5
    """
    options = _Options(priority, key, group, delay, due, ttl, id, header)
    if file is None and project is None:
        raise ConfigError("put needs a project, or --file with many messages: `evenlane put PROJECT BODY`")
    if file is not None and (project is not None or any(each is not None for each in options)):
        raise ConfigError("--file stands alone: each of its lines names its project and says the rest itself")
    if file is None and admission is not None:
        raise ConfigError("--admission goes with --file: a single message has nothing to wait for")
    settings = given.load().settings
    from engine.cli.run import run_loop
    from engine.logs import setup

    setup(settings.log_format, settings.log_level)
    if file is not None:
        told = run_loop(_many(settings, file, admission, as_json=as_json))
        _tell_many(told, as_json=as_json)
        return
    message = _message(str(project), body, options)
    receipt: Receipt = run_loop(_one(settings, message))
    if as_json:
        print_json({"put": int(not receipt.duplicate), "duplicates": int(receipt.duplicate), "refused": []})
    else:
        what = f"duplicate {project}" if receipt.duplicate else f"put {project} 1"
        print(f"{what} -> {receipt.stream}:{receipt.sequence}")  # noqa: T201


def _message(project: str, body: str | None, options: _Options) -> Put:
    """Raises ConfigError, InvalidName, InvalidPut for what can be told without asking a server."""
    from engine import headers, names
    from engine.producer import Put
    from engine.producer.times import check

    names.check_project(project)
    named = dict(map(_header, options.header or ()))
    headers.check_user(named)
    check(Put(project, b"", *options[:-1]))
    raw = sys.stdin.buffer.read() if body is None else os.fsencode(body)
    return Put(project, raw, *options[:-1], headers=named or None)


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--header {text!r} is not NAME=VALUE")
    return name, value


async def _one(settings: Settings, message: Put) -> Receipt:
    from engine.producer import Producer

    async with Producer(settings=settings) as producer:
        [outcome] = await producer.put_many([message])
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


async def _many(settings: Settings, file: str, admission: float | None, *, as_json: bool) -> Tally:
    import asyncio

    from engine.cli.put_file import Tally, put_lines
    from engine.producer import Producer

    tally = Tally(None if as_json else sys.stderr)
    descriptor = _opened(file)
    try:
        async with Producer(settings=settings, admission=admission) as producer:
            await put_lines(producer, descriptor, tally)
    except asyncio.CancelledError:
        print(  # noqa: T201
            f"evenlane: {tally.put:,} messages are stored, and those on their way may be or not: put again, only what"
            " has an id is stored once",
            file=sys.stderr,
        )
        raise
    finally:
        if file != "-":
            os.close(descriptor)
    return tally


def _opened(file: str) -> int:
    if file == "-":
        return sys.stdin.fileno()
    try:
        descriptor = os.open(file, os.O_RDONLY)
        os.read(descriptor, 0)  # a folder opens, too
    except OSError as error:
        raise ConfigError(f"--file {file} can't be read: {error.strerror}") from None
    return descriptor


def _tell_many(tally: Tally, *, as_json: bool) -> None:
    if as_json:
        print_json(tally.document())
    else:
        print(f"put {tally.put}, duplicates {tally.duplicates}, refused {tally.refusals}")  # noqa: T201
    if tally.refusals:
        raise typer.Exit(1)
