"""What is loaded into this process."""
