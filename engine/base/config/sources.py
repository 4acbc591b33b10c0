"""Sources of settings, in rising order of precedence: a TOML file, `EVENLANE_*` variables, flags."""

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from evenlane.engine.base.config.toml_file import read_toml
from evenlane.engine.errors import ConfigError

PREFIX = "EVENLANE_"
CONFIG_VARIABLE = "EVENLANE_CONFIG"
_NO_SETTINGS = {CONFIG_VARIABLE, "EVENLANE_PURE"}  # `evenlane/__init__.py` reads EVENLANE_PURE
DEFAULT_FILE = Path("evenlane.toml")

# Kubernetes sets such variables in every pod of a namespace with a service named evenlane or evenlane-...: not
# settings.
_SERVICE_LINK = re.compile(
    r"EVENLANE_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)

Value = tuple[str, object, str]
"""A key, its value as given, and its origin: `file PATH`, `variable NAME` or `flag --NAME`."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The three sources. `keys` are all settings; `paths` are those whose value is a path."""

    keys: Collection[str]
    paths: Collection[str]

    def values(self, flags: Mapping[str, object], environ: Mapping[str, str], config: Path | None) -> Iterator[Value]:
        """Yield all given values. Raises ConfigError for an unknown key, and for a file that can't be read."""
        if path := _config_path(environ, config):
            yield from self._from_file(path)
        yield from self._from_variables(environ)
        for key, value in flags.items():
            if value is not None:
                self._check(key, f"flag {_flag(key)}", _flag)
                yield key, value, f"flag {_flag(key)}"

    def _from_file(self, path: Path) -> Iterator[Value]:
        origin = f"file {path}"
        try:
            document = read_toml(origin, path.read_bytes())
        except OSError as error:
            raise ConfigError(f"{origin} can't be read: {error.strerror}") from error
        for key, value in document.items():
            self._check(key, origin, str)
            yield key, _from_folder(path.parent, value) if key in self.paths else value, origin

    def _from_variables(self, environ: Mapping[str, str]) -> Iterator[Value]:
        for variable in sorted(environ):
            if not variable.startswith(PREFIX) or variable in _NO_SETTINGS or not environ[variable]:
                continue
            key = variable.removeprefix(PREFIX).lower()
            if _SERVICE_LINK.fullmatch(variable) and (key not in self.keys or "://" in environ[variable]):
                continue
            self._check(key, f"variable {variable}", _variable)
            yield key, environ[variable], f"variable {variable}"

    def _check(self, key: str, origin: str, spelled: Callable[[str], str]) -> None:
        if key in self.keys:
            return
        near = difflib.get_close_matches(key, list(self.keys), n=1)
        hint = f"did you mean {spelled(near[0])}?" if near else "`evenlane config` lists the settings"
        raise ConfigError(f"{origin}: there is no setting {key!r}; {hint}")


def _config_path(environ: Mapping[str, str], config: Path | None) -> Path | None:
    if config is not None:
        return config
    if named := environ.get(CONFIG_VARIABLE):
        return Path(named)
    return DEFAULT_FILE if DEFAULT_FILE.is_file() else None


def _from_folder(folder: Path, value: object) -> object:
    """Resolve a path in a file relative to that file's folder, wherever the process starts."""
    return str(folder / Path(value).expanduser()) if isinstance(value, str) and value.strip() else value


def _variable(key: str) -> str:
    return PREFIX + key.upper()


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")
