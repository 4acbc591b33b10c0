"""Quotas: topics as data, and the rate of each.

Pure: no clock, no randomness, no I/O. `topics` defines topics and templates, and reads them; `rates` decides how fast
each may go; `lending` divides one quota between nodes.
"""

if __name__ != "evenlane.quota":  # imported as a folder of the checkout: each module would exist twice
    raise ImportError("import evenlane.quota, not " + __name__)
