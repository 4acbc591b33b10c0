"""The clock that leases and timers go by: monotonic, and running on while the machine sleeps."""

import time
from functools import partial

now_ns = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
"""Nanoseconds since boot. Only differences mean anything."""
