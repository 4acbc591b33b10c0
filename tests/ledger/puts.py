"""Puts with readable ids."""

from evenlane.engine.producer.put import Put


def some(project: str, name: str, count: int, *, order: str = "", body: bytes = b"") -> list[Put]:
    """Puts with ids `<project>-<name>-0` and so on. `order` is for `handlers.obey`."""
    headers = {"order": order} if order else None
    return [Put(project, body, id=f"{project}-{name}-{number}", headers=headers) for number in range(count)]


def one(project: str, name: str, *, order: str = "", body: bytes = b"") -> Put:
    """A put with the id `<project>-<name>`."""
    return Put(project, body, id=f"{project}-{name}", headers={"order": order} if order else None)
