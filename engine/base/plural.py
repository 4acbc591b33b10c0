"""Numbers of things in sentences: "1 message is", "2,000 messages are". Pure."""


def counted(number: float, noun: str, one: str = "", many: str = "") -> str:
    """`one` or `many` is what goes on behind the noun, as a verb does. The noun's plural ends in s."""
    written = f"{number:,.0f}"
    return f"{written} {noun}{_behind(one)}" if written == "1" else f"{written} {noun}s{_behind(many)}"


def _behind(text: str) -> str:
    return f" {text}" if text else ""
