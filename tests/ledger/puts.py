"""Puts with ids that tell them apart."""

from evenlane.engine.producer.put import Put


def some(project: str, name: str, count: int, *, order: str = "", body: bytes = b"") -> list[Put]:
    """`<project>-<name>-0` and so on; `order` is what `handlers.obey` is to do with each."""
    headers = {"order": order} if order else None
    return [Put(project, body, id=f"{project}-{name}-{number}", headers=headers) for number in range(count)]


def one(project: str, name: str, *, order: str = "", body: bytes = b"") -> Put:
    """`<project>-<name>`."""
    return Put(project, body, id=f"{project}-{name}", headers={"order": order} if order else None)
