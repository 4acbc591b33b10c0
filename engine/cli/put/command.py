"""Command `evenlane put`: puts one message from the command line, or many from a file of JSON lines."""

from __future__ import annotations

import os
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from evenlane.engine.cli.options import CommonOptions, Json, common, factor, instant, seconds
from evenlane.engine.cli.output import print_json
from evenlane.engine.errors import ConfigError, Unreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.core.ports import Receipt
    from evenlane.engine.producer.producer import Producer
    from evenlane.engine.producer.put import Put
    from evenlane.engine.producer.put_lines import PutTally


class _Options(NamedTuple):
    """Options of one message, besides project and body."""

    priority: str | None
    key: str | None
    group: int | None
    delay: float | None
    due: int | None
    ttl: float | None
    id: str | None
    header: list[str] | None


_Project = Annotated[str | None, typer.Argument(metavar="PROJECT", show_default=False)]
_Body = Annotated[
    str | None, typer.Argument(metavar="[BODY]", help="Body of the message; stdin if left out.", show_default=False)
]
_Priority = Annotated[str | None, typer.Option("--priority", metavar="P", help="Priority; the middle one if left out.")]
_Key = Annotated[
    str | None, typer.Option("--key", metavar="K", help="Key: messages with the same key go to the same group.")
]
_Group = Annotated[int | None, typer.Option("--group", metavar="N", help="Group, in place of a key.")]
_Delay = Annotated[
    float | None, typer.Option("--delay", parser=seconds, metavar="DURATION", help="Time until the message is due.")
]
_Due = Annotated[
    int | None, typer.Option("--due", parser=instant, metavar="RFC3339", help="Time at which the message is due.")
]
_Ttl = Annotated[
    float | None, typer.Option("--ttl", parser=seconds, metavar="DURATION", help="Time from due to expiry.")
]
_Id = Annotated[str | None, typer.Option("--id", metavar="ID", help="Id: a repeated put is stored once.")]
_Header = Annotated[
    list[str] | None, typer.Option("--header", metavar="K=V", help="Header; repeat the option for several.")
]
_File = Annotated[
    str | None, typer.Option("--file", metavar="FILE", help="Put JSON lines; - is stdin. Without PROJECT.")
]
_Admission = Annotated[
    float | None,
    typer.Option(
        "--admission", parser=factor, metavar="X", help="With --file: put at most X times the qps of each topic."
    ),
]


@common
def put(
    given: CommonOptions,
    project: _Project = None,
    body: _Body = None,
    *,
    priority: _Priority = None,
    key: _Key = None,
    group: _Group = None,
    delay: _Delay = None,
    due: _Due = None,
    ttl: _Ttl = None,
    id: _Id = None,  # noqa: A002
    header: _Header = None,
    file: _File = None,
    admission: _Admission = None,
    as_json: Json = False,
) -> None:
    """Put a message, or many from a file. It returns when the messages are stored.

    A line of the file: {"project", "body" or "body_base64", "priority", "key", "group", "delay", "due",
    "ttl", "id", "headers"}; all but project and body may be left out. An invalid line is reported with its number,
    and doesn't stop the others. A message that was already stored under its id counts as a duplicate, not as put.
    Exit code 1 if a message was refused.

    Example:
      evenlane put acme '{"order": 1}' --priority high --key customer-7
      evenlane put acme --delay 10m < body.bin
      evenlane put --file messages.jsonl --json
      evenlane put --file night.jsonl --admission 0.5
    """
    options = _Options(priority, key, group, delay, due, ttl, id, header)
    _check_use(project, file, admission, options)
    settings = given.load_shared().settings
    from evenlane.engine.base.log_setup import setup

    setup(settings.log_format, settings.log_level)
    if file is not None:
        return _put_file(settings, file, admission, as_json=as_json)
    return _put_one(settings, str(project), body, options, as_json=as_json)


def _check_use(project: str | None, file: str | None, admission: float | None, options: _Options) -> None:
    """Raise ConfigError for options that don't go together."""
    if file is None and project is None:
        raise ConfigError("put needs a project, or --file with many messages: `evenlane put PROJECT BODY`")
    if file is not None and (project is not None or any(each is not None for each in options)):
        raise ConfigError("--file can't be combined with a project or its options: each of its lines names them itself")
    if file is None and admission is not None:
        raise ConfigError("--admission needs --file: a single message has nothing to wait for")


@asynccontextmanager
async def _open_producer(settings: Settings, admission: float | None = None) -> AsyncIterator[Producer]:
    """Raises Unreachable, whose text says that nothing was put."""
    from evenlane.engine.producer.producer import Producer

    async with AsyncExitStack() as opened:
        try:
            producer = await opened.enter_async_context(Producer(settings=settings, admission=admission))
        except Unreachable as error:
            raise Unreachable(f"nothing was put: {error}") from error
        yield producer


# ---- one message


def _put_one(settings: Settings, project: str, body: str | None, options: _Options, *, as_json: bool) -> None:
    from evenlane.engine.runtime.run_loop import run_loop

    receipt: Receipt = run_loop(_one(settings, _message(project, body, options)))
    if as_json:
        print_json({"put": int(not receipt.duplicate), "duplicates": int(receipt.duplicate), "refused": []})
    else:
        what = f"duplicate {project}" if receipt.duplicate else f"put {project} 1"
        print(f"{what} -> {receipt.stream}:{receipt.sequence}")  # noqa: T201


def _message(project: str, body: str | None, options: _Options) -> Put:
    """Build the message. Raises ConfigError, InvalidName, InvalidPut for errors that are found without a server."""
    from evenlane.engine.base import names
    from evenlane.engine.core.wire import headers
    from evenlane.engine.producer.deadlines import check
    from evenlane.engine.producer.put import Put

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
    async with _open_producer(settings) as producer:
        [outcome] = await producer.put_many([message])
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


# ---- many messages, from a file


def _put_file(settings: Settings, file: str, admission: float | None, *, as_json: bool) -> None:
    """Put the file's messages. Raises Exit if a line was refused."""
    import signal

    from evenlane.engine.cli.signals import run_until_signal
    from evenlane.engine.runtime.run_loop import run_loop

    work = _many(settings, file, admission, as_json=as_json)
    tally: PutTally = run_loop(run_until_signal(work, signal.SIGTERM, signal.SIGHUP))
    if as_json:
        print_json(tally.document())
    else:
        print(f"put {tally.put}, duplicates {tally.duplicates}, refused {tally.refusals}")  # noqa: T201
    if tally.refusals:
        raise typer.Exit(1)


async def _many(settings: Settings, file: str, admission: float | None, *, as_json: bool) -> PutTally:
    import asyncio

    from evenlane.engine.base.plural import format_count
    from evenlane.engine.cli.progress import Stderr
    from evenlane.engine.cli.put.jsonl import put_progress, read_chunks
    from evenlane.engine.producer.put_lines import PutTally, put_lines

    tally = PutTally(None if as_json else Stderr())
    descriptor = _open_file(file)
    try:
        with put_progress(descriptor, tally) as far:
            async with _open_producer(settings, admission) as producer:
                await put_lines(producer, read_chunks(descriptor), tally, far.update)
    except asyncio.CancelledError:
        print(  # noqa: T201
            f"evenlane: {format_count(tally.put, 'message', 'is', 'are')} stored, and those in transit may or may not"
            " be: if you put them again, only those with an id are stored once",
            file=sys.stderr,
        )
        raise
    finally:
        if file != "-":
            os.close(descriptor)
    return tally


def _open_file(file: str) -> int:
    if file == "-":
        return sys.stdin.fileno()
    try:
        descriptor = os.open(file, os.O_RDONLY)
        os.read(descriptor, 0)  # opening a folder succeeds, reading it fails
    except OSError as error:
        raise ConfigError(f"--file {file} can't be read: {error.strerror}") from None
    return descriptor
