"""The control plane: topics as they are desired become topics in effect."""
