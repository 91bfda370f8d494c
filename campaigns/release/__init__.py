"""Build what goes to the package index, and use it as a stranger would: ``nox -s dist``."""
