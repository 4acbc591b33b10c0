"""Our root packages have plain names: `priority` and `ring` are also names on the package index, and would replace
ours if some dependency brought them. So a node looks before it starts.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from engine.errors import ConfigError

OURS = ("engine", "quota", "priority", "ring", "spark")


def check() -> None:
    """Raises ConfigError naming the package that isn't ours, and where it comes from."""
    home = Path(__file__).resolve().parent.parent
    for name in OURS:
        spec = find_spec(name)
        found = Path(spec.origin).resolve().parent.parent if spec is not None and spec.origin else None
        if found != home:
            where = f"comes from {found}" if found else "is missing"
            raise ConfigError(
                f"package {name!r} {where}, not from Evenlane in {home}: give Evenlane an environment of its own"
            )
