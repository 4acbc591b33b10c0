"""Numbers as people write them."""

from decimal import Decimal


def format_number(number: float) -> str:
    """Format exactly, without exponent and without zeros at the end: `1000`, `0.9`, `0.00001`."""
    text = format(Decimal(repr(float(number))), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
