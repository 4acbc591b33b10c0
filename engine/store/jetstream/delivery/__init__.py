"""From the socket's bytes to a feed's sink: the parser, the pull consumer and its budget; and back, the outbox. No I/O."""
