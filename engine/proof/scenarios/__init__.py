"""The scenarios that prove the scheduler: one load each, run by two runners, and the bars that it must pass.

A scenario (`hot`, `shares`, `strict`, `skewed`, `scale`) is a load, some arms (the product, and the unfair controls
beside it) and the figures to read from their traces. The simulator drives the production scheduler on a virtual
clock; the broker runner puts the same load to a real node on a real nats-server. docs/explanation/benchmarks.md tells
each scenario's story; `catalog` knows them by name.
"""
