"""Quotas: topics as data, and how fast each may go.

Everything here decides and nothing acts: no clock, no random number, no I/O. `evenlane.quota.topic` is what a topic
may be and how it is read, strictly; `evenlane.quota.backoff` is when a failed message comes again.
"""

if __name__ != "evenlane.quota":  # found as a folder of the checkout: each module would be there twice
    raise ImportError("import evenlane.quota, not " + __name__)
