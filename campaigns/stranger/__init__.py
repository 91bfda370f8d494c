"""The first ten minutes with the wheel, as the documentation tells them: ``nox -s stranger``."""
