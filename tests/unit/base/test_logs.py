import io
import json
import logging
import warnings

import pytest
import structlog

from evenlane.engine.base import log_setup


@pytest.fixture(autouse=True)
def logging_as_before():
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


def test_an_event_is_one_json_line_on_stderr_with_time_level_and_facts(capsys):
    log_setup.setup("auto")
    structlog.get_logger().info("partition taken", partition=3, epoch=12)
    [line] = lines(capsys)
    assert ["timestamp", "level", "event"] == list(line)[:3]
    assert {"level": "info", "event": "partition taken", "partition": 3, "epoch": 12} == {
        key: value for key, value in line.items() if key != "timestamp"
    }
    assert line["timestamp"].endswith("Z")


def test_what_is_below_the_level_is_left_out(capsys):
    log_setup.setup("json", "warning")
    log = structlog.get_logger()
    log.info("no")
    logging.getLogger("any").info("no")
    log.warning("yes")
    assert ["yes"] == [line["event"] for line in lines(capsys)]


def test_a_second_setup_replaces_the_first(capsys):
    log_setup.setup("json", "info")
    log_setup.setup("json", "debug")
    structlog.get_logger().debug("once")
    assert ["once"] == [line["event"] for line in lines(capsys)]


def test_a_client_librarys_error_is_told_in_a_word_and_its_chatter_left_out(capsys):
    log_setup.setup("json", "info")
    logging.getLogger("nats.aio.client").info("chatter")
    logging.getLogger("nats.aio.client").error("nats: encountered error", exc_info=ConnectionError("gone"))
    [line] = lines(capsys)
    assert "ConnectionError: gone" == line["error"]
    assert "exception" not in line


def test_the_traceback_of_a_defect_stays_in_its_one_line(capsys):
    log_setup.setup("json")
    logging.getLogger("asyncio").error("Task exception was never retrieved", exc_info=ValueError("v"))
    [line] = lines(capsys)
    assert "ValueError: v" in line["exception"]


def test_warnings_of_libraries_are_events_too(capsys):
    log_setup.setup("json")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    assert ["py.warnings"] == [line["logger"] for line in lines(capsys)]


def test_the_console_form_is_for_eyes(capsys):
    log_setup.setup("console")
    structlog.get_logger().info("partition taken", partition=3)
    err = capsys.readouterr().err
    assert "[info     ] partition taken" in err
    assert "partition=3" in err


@pytest.mark.parametrize("form", ["json", "console"])
def test_users_and_passwords_of_addresses_are_in_no_line_whoever_says_it(capsys, form):
    """Not in a traceback either."""
    log_setup.setup(form, "debug")
    url = "nats://worker:S3CRET@127.0.0.1:4222"
    structlog.get_logger().warning("connects", to=url, error=f"NATS at {url} does not answer")
    logging.getLogger("nats.aio").error("gone", exc_info=ConnectionError(url))
    logging.getLogger("any").error("failed", exc_info=ValueError(f"of {url}"))
    err = capsys.readouterr().err
    assert "S3CRET" not in err
    assert "worker" not in err
    assert 3 <= err.count("nats://***@127.0.0.1:4222")


def test_a_field_has_an_end_and_a_line_stays_one(capsys):
    log_setup.setup("json", "debug")
    structlog.get_logger().info("long", text="one\ntwo" * 10_000)
    [line] = lines(capsys)
    assert 4_000 == len(line["text"])


def test_lines_go_to_what_stderr_is_now(capsys, monkeypatch):
    """A progress bar that is drawn puts itself in its place, so that lines stand above it."""
    log_setup.setup("json")
    now = io.StringIO()
    monkeypatch.setattr("sys.stderr", now)
    structlog.get_logger().info("above")
    assert "above" in now.getvalue()
    assert ("", "") == capsys.readouterr()
