"""Sessions of this project: ``nox -l`` lists them; the cells are in matrices/cells.toml.

Each cell installs the newest pytest-cudalink from the package index. The environment variable CUDALINK_REQUIREMENT
names another build: a version such as pytest-cudalink==0.1.0, the path of a wheel, or a URL.
"""

import nox

from pytest_cudalink.matrix.nox import sessions

nox.options.default_venv_backend = "uv|virtualenv"

sessions("matrices/cells.toml")
