"""The test kit: an application on a real node, with a store in memory and a clock of its own."""
