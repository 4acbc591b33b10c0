"""Metrics page."""
