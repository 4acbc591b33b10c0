"""What a plan would change."""
