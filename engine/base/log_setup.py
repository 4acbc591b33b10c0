"""Sets up logs: one event per line on stderr, as JSON or in readable form; stdout is for a command's output."""

import logging
import os
import re
import sys
from typing import Any, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from evenlane.engine.base.config.settings import LogFormat, LogLevel
from evenlane.engine.base.handler_logs import add_message_fields

# Messages of these libraries below their level are irrelevant here; grpc's C core writes to stderr on its own.
_QUIET = {
    "nats": logging.WARNING,
    "etcd3": logging.WARNING,
    "grpc": logging.ERROR,
    "asyncio": logging.WARNING,
}


_LONGEST = 4_000  # characters per field; a traceback may have more
_USERINFO = re.compile(r"(\w://)[^\s/@]*@")


class _PresentStderr:
    """`sys.stderr` as it is at the moment: a test runner replaces it, and closes what it was."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


class _Stderr(logging.StreamHandler[TextIO]):
    """A handler of our own, so that a second set-up replaces it and leaves other handlers alone. It writes to the
    present `sys.stderr`, because a progress bar replaces `sys.stderr` while it is drawn, to print lines above the bar.
    """

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, _stream: TextIO) -> None:
        raise AttributeError("it is always stderr")


def setup(log_format: LogFormat = "auto", level: LogLevel = "info") -> None:
    """Send logs of this process and its libraries to stderr. May be called again to change the format or level.

    "auto" means console on a terminal and JSON elsewhere. Call it before grpc is imported, otherwise its C core logs.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    threshold = logging.getLevelNamesMapping()[level.upper()]
    shared = _build_processors()
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    _route_libraries(_formatter(shared, console=console), threshold)


def to_stderr() -> None:
    """Send logs to stderr in a program that hasn't configured structlog, whose default is the program's own stdout."""
    if not structlog.is_configured():
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _PresentStderr())))


def _build_processors() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        add_message_fields,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]


def _formatter(shared: list[Processor], *, console: bool) -> logging.Formatter:
    render: list[Processor]
    if console:
        plain = structlog.dev.plain_traceback
        colors = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        render = [_discreet, structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain)]
    else:
        json = structlog.processors.JSONRenderer(default=str)
        render = [_discreet, _sort_fields, json]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name, structlog.stdlib.ExtraAdder(), _cause],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            *render,
        ],
    )


def _discreet(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Remove users and passwords from URLs, and shorten overlong values, whatever a library or server logs."""
    for key, value in event.items():
        if isinstance(value, str):
            text = _USERINFO.sub(r"\1***@", value)
            event[key] = text if key == "exception" or len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return event


def _sort_fields(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    first = {key: event.pop(key) for key in ("timestamp", "level", "event") if key in event}
    return first | dict(event)


def _cause(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace a client library's traceback, which shows only its internals, by the error in one line."""
    if not str(event.get("logger", "")).startswith(("nats", "etcd3", "grpc")):
        return event
    found: Any = event.pop("exc_info", None)
    error = found[1] if isinstance(found, tuple) else found
    if isinstance(error, BaseException):
        event["error"] = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return event


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """Filter out asyncio's warning at the end of connections that upgraded to TLS, as those to NATS do (gh-85149)."""
    return record.name != "asyncio" or "eof_received() has no effect" not in record.getMessage()


def _route_libraries(formatter: logging.Formatter, threshold: int) -> None:
    handler = _Stderr()
    handler.setFormatter(formatter)
    handler.addFilter(_is_worth_logging)
    root = logging.getLogger()
    root.handlers[:] = [*(each for each in root.handlers if not isinstance(each, _Stderr)), handler]
    root.setLevel(threshold)
    logging.captureWarnings(capture=True)
    for name, least in _QUIET.items():
        logging.getLogger(name).setLevel(max(least, threshold))
