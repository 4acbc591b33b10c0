"""Exempts everything imported so far from garbage collection, for the processes that are forked from this one.
Otherwise each looks through it first, and so copies all of the memory that they share.
"""

import gc

gc.collect()
gc.freeze()
