"""The broker runners: one node in this process, or several nodes, each a process."""
