"""Loading settings, and the sentences of refusals."""

from pathlib import Path

import pytest

from evenlane.engine.base.config.settings import load
from evenlane.engine.errors import ConfigError


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def refusal(**arguments) -> str:
    with pytest.raises(ConfigError) as caught:
        load(**{"environ": {}} | arguments)
    return str(caught.value)
