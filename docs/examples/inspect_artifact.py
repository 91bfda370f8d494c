"""Say what a file of device code is."""

import sys
from pathlib import Path

from pytest_cudalink.artifacts import inspect

for name in sys.argv[1:]:
    artifact = inspect(Path(name).read_bytes())
    print(f"{Path(name).name}: {artifact.describe()}")
    for problem in artifact.problems:
        print(f"  problem: {problem}")
    if artifact.kernels:
        print(f"  kernels: {', '.join(artifact.kernels)}")
    if artifact.undefined:
        print(f"  undefined: {', '.join(artifact.undefined)}")
