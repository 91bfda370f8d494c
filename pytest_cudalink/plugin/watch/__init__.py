"""What is noticed while tests run, and fails them."""
