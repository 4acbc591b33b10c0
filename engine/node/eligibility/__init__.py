"""Decides which messages may start now."""
