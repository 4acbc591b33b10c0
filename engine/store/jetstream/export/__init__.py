"""Reading whole streams, for reports."""
