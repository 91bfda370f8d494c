"""Mutation tests of the pure rules: ``python -m tests.mutants``, or ``nox -s mutants``."""
