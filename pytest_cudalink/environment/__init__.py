"""What this machine has, and what a test needs of it."""
