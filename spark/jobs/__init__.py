"""Jobs for spark-submit: a report, the archive of meter records, continuously updated tables."""

import sys

from evenlane.spark.installed import find_missing

# A job imports PySpark before it can report an error; `python -m evenlane.spark.jobs.NAME` imports this module first.
if sys.argv[:1] == ["-m"] and (why := find_missing()) is not None:
    sys.exit(f"evenlane: {why}")
