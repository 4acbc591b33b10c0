"""Formats counts in sentences: "1 message is", "2,000 messages are". Pure."""


def format_count(number: float, noun: str, one: str = "", many: str = "") -> str:
    """Format a count. `one` or `many` follows the noun, for example a verb. The noun's plural must end in s."""
    written = f"{number:,.0f}"
    return f"{written} {noun}{_behind(one)}" if written == "1" else f"{written} {noun}s{_behind(many)}"


def _behind(text: str) -> str:
    return f" {text}" if text else ""
