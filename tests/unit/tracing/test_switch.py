"""Traces are on if the process has a tracer provider, unless the setting says otherwise."""

import pytest

from evenlane import ConfigError
from evenlane.engine.tracing.switch import find_attempt_tracer, find_tracer
from tests.support.run_code import run_code


def test_process_without_a_provider_does_not_trace():
    assert find_tracer("auto") is None
    assert find_attempt_tracer("auto") is None


def test_setting_off_wins_over_a_provider(spans):
    assert find_tracer("off", spans.provider) is None


def test_setting_on_needs_a_provider():
    with pytest.raises(ConfigError, match=r"no tracer provider: call opentelemetry.trace.set_tracer_provider"):
        find_tracer("on")


def test_provider_that_the_process_has_set_is_used():
    run_code("""
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from evenlane.engine.tracing.switch import find_tracer

        trace.set_tracer_provider(TracerProvider())
        for setting in ("auto", "on"):
            assert find_tracer(setting).start_span("x").is_recording()
        assert find_tracer("off") is None
    """)


def test_nothing_of_opentelemetry_is_imported_without_a_provider():
    run_code("""
        import sys
        from evenlane import Engine, Producer
        from evenlane.engine.tracing.switch import find_tracer

        assert find_tracer("auto") is None
        assert not [name for name in sys.modules if name.startswith("opentelemetry")]
    """)


def test_missing_package_is_an_error_only_if_traces_are_on():
    run_code("""
        import sys
        from evenlane import ConfigError
        from evenlane.engine.tracing.switch import find_tracer

        sys.modules["opentelemetry"] = None  # as if it weren't installed
        assert find_tracer("auto") is None
        try:
            find_tracer("on")
        except ConfigError as error:
            assert "install evenlane[otel]" in str(error), error
        else:
            raise AssertionError
    """)
