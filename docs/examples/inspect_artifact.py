"""Say what a file of device code is."""

import sys
from pathlib import Path

from pytest_cudalink.artifacts import inspect

for name in sys.argv[1:]:
    found = inspect(Path(name).read_bytes())
    print(f"{Path(name).name}: {found.describe()}")
    for problem in found.problems:
        print(f"  problem: {problem}")
    if found.kernels:
        print(f"  kernels: {', '.join(found.kernels)}")
    if found.undefined:
        print(f"  undefined: {', '.join(found.undefined)}")
