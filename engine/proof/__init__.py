"""The proof: scenarios, the demo, and the baselines that they are compared with."""
