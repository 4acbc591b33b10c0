"""One lane: a stream owned under one epoch, which of its messages are settled, and its settle log."""
