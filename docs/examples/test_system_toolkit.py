"""cuda.pathfinder takes the library of the wheel, although a toolkit of the system is installed in an odd place."""

import os
import subprocess
import sys

FIND = "from cuda.pathfinder import load_nvidia_dynamic_lib as load; print(load('cudart').abs_path)"


def find(environment):
    command = [sys.executable, "-c", FIND]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_the_wheel_comes_first(system_toolkit):
    toolkit = system_toolkit(layout="targets", libraries=["cudart"])

    found = find({**os.environ, **toolkit.environment})

    assert "site-packages" in found
    assert not found.startswith(str(toolkit.root))
