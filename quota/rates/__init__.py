"""Rates in time: token buckets, guarantees of groups, backoff."""
