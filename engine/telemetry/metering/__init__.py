"""Usage records for reports."""
