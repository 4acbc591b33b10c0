"""What follows a handler: outcomes, settle log, truncation."""
