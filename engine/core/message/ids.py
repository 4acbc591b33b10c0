"""A message's id, as far as its headers and its place tell. Pure."""

from evenlane.engine.core.wire.header_values import own_id


def message_id(project: str, stream: str, sequence: int, at: int, block: bytes) -> str:
    """The same over all attempts: the producer's, or what the message's first place made of it (`Message.id`)."""
    return own_id(block, project) or f"{stream}-{sequence}-{at}"
