"""Quotas: topics as data, and how fast each may go.

Pure: no clock, no random number, no I/O. `topics` defines topics and templates and how they are read; `rates` decides
how fast each may go; `lending` divides one quota between nodes.
"""

if __name__ != "evenlane.quota":  # found as a folder of the checkout: each module would be there twice
    raise ImportError("import evenlane.quota, not " + __name__)
