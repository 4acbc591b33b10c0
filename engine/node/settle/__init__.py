"""Handles the results of attempts: completion, failures, settle log, truncation."""
