"""Clock of leases and timers: monotonic, and running while the machine sleeps."""

import time
from functools import partial

now_ns = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
"""Nanoseconds since boot. Only differences are meaningful."""
