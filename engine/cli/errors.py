"""Ends commands: exit code 0 done, 1 failed, 2 wrong use, and one sentence on stderr with the reason."""

import sys
import traceback
from collections.abc import Iterator

from typer.exceptions import TyperException

from evenlane.engine.errors import ConfigError, EvenlaneError, InvalidName, InvalidPut, InvalidTopic, PayloadTooLarge

DONE, FAILED, WRONG_USE, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143

# Errors that are found without contacting a server.
_WRONG_USE = (ConfigError, InvalidName, InvalidPut, InvalidTopic, PayloadTooLarge)


def report(error: Exception, *, debug: bool) -> int:
    """Report an error on stderr, in one sentence. Returns the exit code."""
    cause = _first_known(error)
    if debug:
        traceback.print_exception(error)
    print(f"evenlane: {_sentence(cause)}", file=sys.stderr)  # noqa: T201
    if isinstance(cause, TyperException):
        return cause.exit_code
    return WRONG_USE if isinstance(cause, _WRONG_USE) else FAILED


def _sentence(error: Exception) -> str:
    match error:
        case TyperException():
            message = _one_line(error.format_message()).replace(". Did you mean", ", did you mean")
            message = message.replace(": Value error, ", ": ", 1)  # typer's words about its own checks
            return message.rstrip(".") + _where_to_read(error)
        case EvenlaneError():
            return _one_line(str(error))
        case OSError():
            return f"{_one_line(str(error))}; --debug shows where it was raised"
    return (
        f"unexpected {type(error).__name__}: {_one_line(str(error)) or 'no reason given'}; "
        "this is a defect, --debug shows the traceback"
    )


def _where_to_read(error: TyperException) -> str:
    context = getattr(error, "ctx", None)
    return f" (see `{context.command_path} --help`)" if context else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _first_known(error: Exception) -> Exception:
    """Return an EvenlaneError from a task group's errors, if there is one, since the others may follow from it."""
    leaves = list(_leaves(error))
    return next((each for each in leaves if isinstance(each, EvenlaneError)), leaves[0])


def _leaves(error: Exception) -> Iterator[Exception]:
    if isinstance(error, ExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error
