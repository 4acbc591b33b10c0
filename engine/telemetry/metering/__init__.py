"""Records of usage for the reports."""
