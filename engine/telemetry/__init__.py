"""Measures nodes and tenants, and publishes the figures."""
