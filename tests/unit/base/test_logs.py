"""The log setup: one JSON line per event on stderr, and no secrets in it."""

import io
import json
import logging
import warnings
from contextlib import redirect_stderr

import pytest
import structlog

from evenlane.engine.base import log_setup


@pytest.fixture(autouse=True)
def restore_logging():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    logging.captureWarnings(capture=False)  # a command that another test ran may have left it on
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


def lines(capsys) -> list[dict]:
    out, err = capsys.readouterr()
    assert "" == out
    return [json.loads(line) for line in err.splitlines()]


def test_event_is_one_json_line_with_time_level_and_fields(capsys):
    log_setup.setup("auto")
    structlog.get_logger().info("partition taken", partition=3, epoch=12)
    [line] = lines(capsys)
    assert ["timestamp", "level", "event"] == list(line)[:3]
    assert {"level": "info", "event": "partition taken", "partition": 3, "epoch": 12} == {
        key: value for key, value in line.items() if key != "timestamp"
    }
    assert line["timestamp"].endswith("Z")


def test_events_below_the_level_are_dropped(capsys):
    log_setup.setup("json", "warning")
    log = structlog.get_logger()
    log.info("no")
    logging.getLogger("any").info("no")
    log.warning("yes")
    assert ["yes"] == [line["event"] for line in lines(capsys)]


def test_second_setup_replaces_the_first(capsys):
    log_setup.setup("json", "info")
    log_setup.setup("json", "debug")
    structlog.get_logger().debug("once")
    assert ["once"] == [line["event"] for line in lines(capsys)]


def test_error_of_a_client_library_is_logged_without_traceback(capsys):
    log_setup.setup("json", "info")
    logging.getLogger("nats.aio.client").info("a detail")
    logging.getLogger("nats.aio.client").error("nats: encountered error", exc_info=ConnectionError("gone"))
    [line] = lines(capsys)
    assert "ConnectionError: gone" == line["error"]
    assert "exception" not in line


def test_traceback_of_a_defect_is_in_its_line(capsys):
    log_setup.setup("json")
    logging.getLogger("asyncio").error("Task exception was never retrieved", exc_info=ValueError("v"))
    [line] = lines(capsys)
    assert "ValueError: v" in line["exception"]


def test_warnings_of_libraries_are_logged(capsys):
    log_setup.setup("json")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    assert ["py.warnings"] == [line["logger"] for line in lines(capsys)]


def test_console_format_is_readable(capsys):
    log_setup.setup("console")
    structlog.get_logger().info("partition taken", partition=3)
    err = capsys.readouterr().err
    assert "[info     ] partition taken" in err
    assert "partition=3" in err


@pytest.mark.parametrize("form", ["json", "console"])
def test_credentials_of_addresses_are_never_logged(capsys, form):
    """Neither by Evenlane nor by libraries, nor in tracebacks."""
    log_setup.setup(form, "debug")
    url = "nats://worker:S3CRET@127.0.0.1:4222"
    structlog.get_logger().warning("connects", to=url, error=f"NATS at {url} does not answer")
    logging.getLogger("nats.aio").error("gone", exc_info=ConnectionError(url))
    logging.getLogger("any").error("failed", exc_info=ValueError(f"of {url}"))
    err = capsys.readouterr().err
    assert "S3CRET" not in err
    assert "worker" not in err
    assert 3 <= err.count("nats://***@127.0.0.1:4222")


def test_long_field_is_shortened_and_stays_on_one_line(capsys):
    log_setup.setup("json", "debug")
    structlog.get_logger().info("long", text="one\ntwo" * 10_000)
    [line] = lines(capsys)
    assert 4_000 == len(line["text"])


def test_lines_go_to_the_present_stderr(capsys):
    """A progress bar replaces `sys.stderr`, so that log lines appear above it."""
    log_setup.setup("json")
    with redirect_stderr(io.StringIO()) as present:
        structlog.get_logger().info("above")
    assert "above" in present.getvalue()
    assert ("", "") == capsys.readouterr()


def test_program_without_a_set_up_logs_to_the_present_stderr_too():
    """A test runner closes the stream that was `sys.stderr` in an earlier test."""
    structlog.reset_defaults()
    try:
        with redirect_stderr(io.StringIO()) as first:
            log_setup.to_stderr()
        first.close()
        with redirect_stderr(io.StringIO()) as present:
            structlog.get_logger().info("line")
        assert "line" in present.getvalue()
    finally:
        structlog.reset_defaults()
