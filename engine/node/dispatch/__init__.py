"""Chooses the messages that start: the scheduler's grant, the queue's head, and the rules that hold a message back."""
