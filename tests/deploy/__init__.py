"""What deploys Evenlane: chart, image, compose file."""
