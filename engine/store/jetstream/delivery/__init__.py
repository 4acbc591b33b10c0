"""Delivers messages from the socket's bytes to a feed's sink: the parser, the pull consumer, and its budget. No I/O."""
