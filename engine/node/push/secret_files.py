"""The node's folder of secrets. Files are read when they are used, and re-read after a while, so that secrets can be
rotated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.node.push.signature import keys

if TYPE_CHECKING:
    from pathlib import Path

_FRESH_NS = 5_000_000_000
_MOST_BYTES = 65_536


class Secret(NamedTuple):
    keys: tuple[bytes, ...]
    texts: tuple[str, ...]  # as written in the file, to be removed from logs


class NoSecret(Exception):
    """A secret is missing or unusable; the text says which and why, and reveals nothing of its content."""


class SecretFiles:
    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._read: dict[str, tuple[Secret, int]] = {}

    def get(self, ref: str, now: int) -> Secret:
        """The secret, at most 5 s old. `now` in monotonic ns. Raises NoSecret."""
        known = self._read.get(ref)
        if known is not None and now < known[1]:
            return known[0]
        secret = self._from_file(ref)
        self._read[ref] = (secret, now + _FRESH_NS)
        return secret

    def _from_file(self, ref: str) -> Secret:
        if self._folder is None:
            raise NoSecret(f"secret {ref} can't be read: this node has no push_secrets, the folder of secrets")
        path = self._folder / ref
        try:
            if not path.is_file():  # opening a pipe, say, would block
                raise NoSecret(f"secret {ref} can't be read: there is no such file in push_secrets")
            with path.open("rb") as file:
                text = file.read(_MOST_BYTES).decode()
            return Secret(keys(text), tuple(text.split()))
        except OSError as error:
            raise NoSecret(f"secret {ref} can't be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise NoSecret(f"secret {ref} can't be used: it isn't UTF-8 text") from None
        except ValueError as error:
            raise NoSecret(f"secret {ref} can't be used: {error}") from None
