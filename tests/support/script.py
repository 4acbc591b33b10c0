"""Text scripts: blocks of commands, a line of dashes, and the expected output.

A line that begins with `#` is prose. `pytest --update` rewrites the output.
"""

DASHES = "----"
_UNITS = {"us": 1_000, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3_600 * 10**9}


def rewritten(text, do):
    """The script with the present output of `do(command)` for each command."""
    return "\n\n".join(_block(do, block) for block in text.strip().split("\n\n")) + "\n"


def _block(do, block):
    lines = block.split("\n")
    if all(line.startswith("#") for line in lines):
        return block
    commands = lines[: lines.index(DASHES)] if DASHES in lines else lines
    printed = [line for command in commands if not command.startswith("#") for line in do(command)]
    return "\n".join([*commands, DASHES, *printed])


def duration(text):
    """A duration, such as `50ms`, in ns."""
    number = text.rstrip("umsh")
    return round(float(number) * _UNITS[text[len(number) :]])
