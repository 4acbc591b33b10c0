"""Quotas: topics as data, and how fast each may go.

Everything here decides and nothing acts: no clock, no random number, no I/O. `quota.topic` is what a topic
may be and how it is read, strictly; `quota.backoff` is when a failed message comes again.
"""
