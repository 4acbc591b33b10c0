"""The exceptions that a handler may raise.

Users subclass them, and a compiled class can't have interpreted subclasses, so this module stays interpreted
(`tool.hatch.build.targets.wheel.hooks.mypyc` in pyproject.toml).
"""

from __future__ import annotations

from evenlane.engine.core.message.error_text import describe_error

_LONGEST_S = 366 * 86_400.0


def _seconds(what: str, after: object) -> float:
    if not isinstance(after, int | float) or not 0 <= after <= _LONGEST_S:  # (nor is NaN)
        raise ValueError(f"{what}(after={after!r}): a number of seconds from 0 to a year")
    return float(after)


class Retry(Exception):
    """Raise it to have the message handled again `after` seconds from now; it counts as an attempt."""

    def __init__(self, after: float = 0.0, reason: str = "") -> None:
        self.after = _seconds("Retry", after)
        super().__init__(reason or f"asked to be retried after {after:g} s")


class Reject(Exception):
    """Raise it to send the message to the dead letters at once."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "rejected by its handler")
        self.reason = str(self)


class Pause(Exception):
    """Raise it to pause the message's topic on this node for `after` seconds, for example because an endpoint asks for
    a pause. The message keeps waiting, and no attempt is counted.
    """

    def __init__(self, after: float, reason: str = "") -> None:
        self.after = _seconds("Pause", after)
        super().__init__(reason or f"asked for a pause of {after:g} s")


def text_of(error: Reject) -> str:
    """The reason as text. Anyone can overwrite it with an object of another type, which compiled code would refuse."""
    return str(error.reason)


def check_form(error: BaseException) -> BaseException:
    """The handler's exception; or a TypeError in place of a Retry, Reject or Pause whose attributes are invalid: a
    subclass may omit them, and anyone can overwrite them.
    """
    try:
        if isinstance(error, Retry | Pause):
            _seconds(type(error).__name__, error.after)
        elif isinstance(error, Reject):
            text_of(error)
    except BaseException as wrong:  # noqa: BLE001 - its attributes may be code of the user's own
        return TypeError(f"the handler raised a {type(error).__name__} that is not valid: {describe_error(wrong)}")
    return error
