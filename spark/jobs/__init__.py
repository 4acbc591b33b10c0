"""Jobs for spark-submit: a report, the archive of meter records, tables that are kept current."""

import sys

from evenlane.spark.installed import missing

# A job imports PySpark before it can say anything; `python -m evenlane.spark.jobs.NAME` comes by here first.
if sys.argv[:1] == ["-m"] and (why := missing()) is not None:
    sys.exit(f"evenlane: {why}")
