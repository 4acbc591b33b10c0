"""Pieces of Markdown."""

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str, language: str) -> str:
    return f"```{language}\n{text.strip()}\n```"


def joined(parts: Iterable[str]) -> str:
    """Blocks, those that are empty left out."""
    return "\n\n".join(part.strip() for part in parts if part.strip())
