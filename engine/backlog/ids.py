"""A message's id, as far as its headers and its place tell. Pure."""

from engine import headers as h


def message_id(project: str, stream: str, sequence: int, at: int, block: bytes) -> str:
    """The same over all attempts: the producer's, or what the message's first place made of it (`Message.id`)."""
    given = h.value(block, h.ID)
    if given is None:
        return f"{stream}-{sequence}-{at}"
    own = given.removeprefix(f"{project}:")
    return own.rsplit(":", 3)[0] if h.value(block, h.ORIGIN) is not None else own
