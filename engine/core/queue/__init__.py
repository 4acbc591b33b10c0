"""One queue: the messages of one group and priority, in memory."""
