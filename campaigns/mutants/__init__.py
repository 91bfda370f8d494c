"""Mutation tests of the Python and the C: ``nox -s mutants``, or ``python -m campaigns.mutants --help``.

The driver is ours because mutmut 3.8 leaves out functions with a decorator such as ``@cache`` or ``@property``, which
are a fifth of the functions here, and because cosmic-ray 8.7 starts another pytest for each mutant, which takes ten
times as long.
"""
