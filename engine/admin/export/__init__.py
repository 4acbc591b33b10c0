"""Reads streams for reports."""
