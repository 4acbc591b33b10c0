"""The simulator: the production scheduler on a virtual clock, on one node or several."""
