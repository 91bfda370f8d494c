"""Sessions of this project: ``nox -l`` lists them; the cells are in matrices/cells.toml."""

import nox

from pytest_cudalink.matrix.nox import sessions

nox.options.default_venv_backend = "uv|virtualenv"

sessions("matrices/cells.toml")
