"""Decides whether a process traces. Without traces nothing of OpenTelemetry is imported."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from evenlane.engine._version import __version__
from evenlane.engine.errors import ConfigError

if TYPE_CHECKING:
    from evenlane.engine.tracing.attempt_tracer import AttemptTracer

_API = "opentelemetry.trace"
_FROM_ENVIRONMENT = "OTEL_PYTHON_TRACER_PROVIDER"


def find_tracer(setting: str, provider: Any = None) -> Any:
    """The tracer for puts and attempts, None if there are no traces. `setting` is `traces`; `provider` takes the place
    of the process's tracer provider.

    Raises ConfigError if `traces` is `on`, and the package or a tracer provider is missing.
    """
    if setting == "off":
        return None
    if provider is None:
        provider = _find_provider(is_required=setting == "on")
    return provider.get_tracer("evenlane", __version__) if provider is not None else None


def find_attempt_tracer(setting: str, provider: Any = None, *, error_texts: bool = True) -> AttemptTracer | None:
    """`find_tracer` for a node. With `error_texts` a span has the text of a handler's exception. Raises ConfigError."""
    tracer = find_tracer(setting, provider)
    if tracer is None:
        return None
    from evenlane.engine.tracing.attempt_tracer import AttemptTracer  # noqa: PLC0415 - it needs OpenTelemetry

    return AttemptTracer(tracer, error_texts=error_texts)


def _find_provider(*, is_required: bool) -> Any:
    """The process's tracer provider, None if none is set."""
    # a program that has set a provider has imported the API
    if not is_required and _API not in sys.modules and _FROM_ENVIRONMENT not in os.environ:
        return None
    try:
        api = import_module(_API)
    except ImportError as error:
        if not is_required:
            return None
        raise ConfigError(
            f"traces is on, but OpenTelemetry can't be imported ({error}): install evenlane[otel]"
        ) from error
    provider = api.get_tracer_provider()
    if not isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider):
        return provider
    if is_required:
        raise ConfigError(
            "traces is on, but the process has no tracer provider: call opentelemetry.trace.set_tracer_provider before"
            " the node or producer opens, or set traces to auto"
        )
    return None
