"""Changes topics for people and programs: what the command line and the Python API share."""
