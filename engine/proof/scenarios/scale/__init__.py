"""`scale`: the cost of a decision and of a message as queues grow from 30 to 60,000."""
