"""The unfair baselines: schedulers and nodes that the product is compared with."""
