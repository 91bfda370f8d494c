"""Scripts of the maintainers, which are not in the wheel: they write the data that the package reads.

``python -m tools.NAME`` runs one, from the root of the checkout. ``nox -s generate`` runs those that need no network.
"""
