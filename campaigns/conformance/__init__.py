"""What a real driver answers, as data, and the cases that ask."""
