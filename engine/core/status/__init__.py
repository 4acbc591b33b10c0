"""What is wrong with a project, in the same words and the same order on every surface."""
