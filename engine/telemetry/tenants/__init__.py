"""Figures by project."""
