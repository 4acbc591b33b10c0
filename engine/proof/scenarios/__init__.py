"""The scenarios: a load, the arms that serve it, figures, and bars; docs/explanation/benchmarks.md describes each."""
