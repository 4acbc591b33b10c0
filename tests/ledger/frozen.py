"""Exempts all objects so far from garbage collection, in a process that others are forked from. Otherwise each child
scans these objects, and so copies the memory that it shares with its parent.
"""

import gc

gc.collect()
gc.freeze()
