"""Tells whether the core runs compiled or as pure Python."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec

_PROBE = "evenlane.engine.core.scheduler.fair"  # any module of the compiled rooms


def is_compiled() -> bool:
    spec = find_spec(_PROBE)
    return spec is not None and (spec.origin or "").endswith(tuple(EXTENSION_SUFFIXES))


def describe_build() -> str:
    return "compiled" if is_compiled() else "pure Python"
