"""Patterns of projects, in which `*` stands for any characters."""

ALL = "*"


def matches(pattern: str, project: str) -> bool:
    """Whether a project's name matches. Takes linear time, unlike a regular expression with many `.*`."""
    first, *rest = pattern.split(ALL)
    if not rest:
        return project == first
    *inner, last = rest
    end = len(project) - len(last)
    at = len(first)
    if end < at or not project.startswith(first) or not project.endswith(last):
        return False
    for part in inner:  # the leftmost place leaves most to those that follow
        at = project.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True
