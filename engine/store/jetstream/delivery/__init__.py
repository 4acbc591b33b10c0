"""From the socket's bytes to a feed's sink: parser, pull consumer and its budget; and back: the outbox. No I/O."""
