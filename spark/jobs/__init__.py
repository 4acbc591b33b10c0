"""Jobs for spark-submit: a report, the archive of meter records, tables that are kept current."""
