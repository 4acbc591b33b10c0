"""Reading streams for reports."""
