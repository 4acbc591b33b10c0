"""Files of the status page from the package, read once, with ETags of their content."""

from __future__ import annotations

from hashlib import sha256
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from starlette.exceptions import HTTPException
from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

    from starlette.requests import Request

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_FALLBACK = "text/plain; charset=utf-8"


class File(NamedTuple):
    """A file as it is served."""

    body: bytes
    content_type: str
    etag: str


class StaticFiles:
    """All files under `engine/http/page`, by their path from there."""

    def __init__(self) -> None:
        self._files = dict(_read(files("evenlane.engine.http") / "page"))

    def answer(self, path: str, request: Request) -> Response:
        """Answer with a file, which browsers may cache but must revalidate. Raises HTTPException if it
        doesn't exist.
        """
        found = self._files.get(path)
        if found is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        headers = {"etag": found.etag, "cache-control": "no-cache", "content-type": found.content_type}
        if _is_known(found.etag, request.headers.get("if-none-match", "")):
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        return Response(found.body, headers=headers)


def _is_known(etag: str, given: str) -> bool:
    return given.strip() == "*" or etag in {each.strip().removeprefix("W/") for each in given.split(",")}


def _read(folder: Traversable, before: str = "") -> Iterator[tuple[str, File]]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _read(each, f"{before}{each.name}/")
        else:
            body = each.read_bytes()
            kind = _TYPES.get(each.name.rpartition(".")[2], _FALLBACK)
            yield before + each.name, File(body, kind, f'"{sha256(body).hexdigest()[:20]}"')
