"""Commands that a sentence names, so that they can be copied as they are."""


def hint(command: str, env: str) -> str:
    """In backticks, with the environment: the reader's own may be another one."""
    return f"`evenlane {command} --env {env}`"
