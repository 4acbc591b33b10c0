"""Names that the checkers find out from subjects and headers."""

from evenlane.engine.base import names
from evenlane.engine.core.wire import headers as h


def name_of_line(stream: str, partition: int | str) -> str:
    return f"{stream}_{partition}" if stream.startswith("AGAIN") else stream


def name_of_log(subject: str) -> str:
    _, cluster, kind, partition = subject.split(".")
    taker = cluster if kind == "again" else names.env_of(cluster)
    return f"{kind.upper()}_{taker}_{partition}"


def uid_of(headers: bytes, *, copied: bool) -> str:
    own = (h.value(headers, h.ID) or "").partition(":")[2].removesuffix(":dead")
    return own.rsplit(":", 3)[0] if copied else own
