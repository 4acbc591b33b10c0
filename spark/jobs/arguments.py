"""Command-line arguments of jobs; defaults come from EVENLANE_* variables, as for nodes."""

from __future__ import annotations

import argparse
import logging
import re
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from evenlane.engine.admin.export.connect import parse_duration, parse_past
from evenlane.engine.errors import ConfigError, EvenlaneError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SPARKS = re.compile(r"[0-9]{1,9} (second|minute|hour|day)s?")
_FAILED, _WRONG_USE = 1, 2


class Arguments:
    """Options shared by jobs, so that each has the same name everywhere."""

    def __init__(self, about: str | None) -> None:
        self.parser = argparse.ArgumentParser(
            description=about, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
        )
        self.parser.add_argument("--nats", metavar="URL[,URL]", help="NATS servers")
        self.parser.add_argument("--env", metavar="NAME", help="environment, such as online")
        self.parser.add_argument(
            "--subscription", metavar="NAME", help="subscription, such as audit; the one without a name if left out"
        )
        self.parser.add_argument(
            "--option", action="append", default=[], metavar="NAME=VALUE", type=_pair,
            help="any other option of the data source, such as nats_creds_file=/run/secrets/nats.creds",
        )  # fmt: skip

    def archive(self, *, required: bool = False) -> None:
        self.parser.add_argument(
            "--archive", metavar="DIR", required=required, help="folder or URL of meter records as Parquet"
        )

    def every(self) -> None:
        self.parser.add_argument(
            "--every",
            metavar="TIME",
            type=_interval,
            help="go on, with a batch each, such as 1m; else it ends when all is read",
        )

    def parse(self, arguments: Sequence[str]) -> tuple[argparse.Namespace, dict[str, str]]:
        """Return the parsed arguments, and the options of the data source."""
        given = self.parser.parse_args(arguments)
        named = {
            name: getattr(given, name) for name in ("nats", "env", "subscription") if getattr(given, name) is not None
        }
        return given, named | dict(given.option)


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not like NAME=VALUE")
    if name == "what":
        raise argparse.ArgumentTypeError("what is read is the job's own matter")
    return name, value


def _interval(text: str) -> str:
    """Convert an interval to Spark's format; Spark's own format, such as `1 minute`, is accepted, too."""
    if _SPARKS.fullmatch(text.strip()):
        return text.strip()
    try:
        return f"{round(parse_duration(text) * 1000)} milliseconds"
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def when(text: str) -> datetime:
    """Parse RFC 3339 or a time ago."""
    try:
        return datetime.fromtimestamp(parse_past(text, time.time_ns()) / 1e9, UTC)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(main: Callable[[Sequence[str]], None]) -> None:
    """Run a job as a program: an error is printed as one sentence on stderr; the exit code is 1, or 2 for wrong use."""
    # The connection to Java logs an interrupted call as the root logger, with tracebacks.
    logging.getLogger().addFilter(lambda record: not record.getMessage().endswith("while sending command."))
    try:
        main(sys.argv[1:])
    except EvenlaneError as error:
        print(f"evenlane: {' '.join(str(error).split())}", file=sys.stderr)  # noqa: T201
        sys.exit(_WRONG_USE if isinstance(error, ConfigError) else _FAILED)
