"""Rates over time: token buckets, guarantees of groups, backoff."""
