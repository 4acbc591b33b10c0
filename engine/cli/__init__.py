"""Commands of `evenlane`. A command imports the rooms that it needs inside its function, so that `--help` is quick."""
