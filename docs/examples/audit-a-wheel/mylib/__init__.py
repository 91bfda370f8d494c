"""A package with a compiled module."""
