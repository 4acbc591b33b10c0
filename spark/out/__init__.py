"""What comes out of a report: one JSON document, one page of HTML, recommended quotas."""
