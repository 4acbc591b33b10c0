"""Reads whole streams, for reports."""
