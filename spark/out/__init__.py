"""Output of a report: one JSON document, one HTML page, recommended quotas."""
