"""Scripts that only maintainers run: they write the data that the package reads, measure hardware and make bundles.

The wheel does not have them. ``python -m tools.NAME`` runs one, from the root of the checkout. ``nox -s generate`` runs
those that need no network.
"""
