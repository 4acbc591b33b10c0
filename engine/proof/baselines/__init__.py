"""Schedulers that are compared with the product."""
