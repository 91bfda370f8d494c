"""Runs under a hostile driver: each call of a test fails once, and work of streams is done in other orders."""
