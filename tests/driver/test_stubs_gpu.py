"""The cudart stub on a GPU, in front of each runtime that is there.

Runtimes are those of site-packages and of the folders that CUDALINK_STUBS_WHEELS names.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_cudalink.stubs import c_source

pytestmark = pytest.mark.usefixtures("real_gpu")
PROGRAM = Path(__file__).parent / "programs" / "runtime_stub.py"


def runtimes() -> list[Path]:
    """Every real libcudart."""
    named = [word for word in os.environ.get("CUDALINK_STUBS_WHEELS", "").split(os.pathsep) if word]
    folders = [Path(word) for word in (named or sys.path)]
    return sorted(path.resolve() for folder in folders for path in folder.glob("nvidia/*/lib/libcudart.so.*"))


@pytest.mark.parametrize("runtime", runtimes() or [None], ids=lambda path: path.parts[-4] if path else "none")
def test_runtime_through_the_stub(runtime: Path | None, tmp_path: Path) -> None:
    """Memory, copies, streams, events and graphs work, and both generations of cudaGraphInstantiate do."""
    if runtime is None:
        pytest.skip("needs the wheel of a CUDA runtime: pip install 'pytest-cudalink[cu13]'")
    (stub,) = c_source.build_stubs(["cudart"], tmp_path)
    environment = {**os.environ, "CUDALINK_STUBS_CUDART": str(runtime)}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(stub)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    description = json.loads(done.stdout)

    assert description["file"] == str(runtime)
    assert "core" not in description["degraded"]
    assert description["count"] >= 1
    assert description["device"] == 0
    assert set(description["processors"].values()) == {description["attribute"]}
    assert description["copied"]
    assert description["elapsed"] >= 0
    assert description["graphs"] == {"3": [0x53, 0x43, None], "5": [0x55, 0x45, None]}
    assert 0 < description["memory"][0] <= description["memory"][1]
    assert description["invalid"] == 101
    assert description["last"] == [101, 101, 0]


def test_driver_through_the_stub(device, tmp_path) -> None:
    """The driver's stub finds the real driver, and no function of the core tier is missing."""
    (stub,) = c_source.build_stubs(["cuda"], tmp_path)
    ask = f"d = s.describe({str(stub)!r}); print(json.dumps([d.version, d.degraded]))"
    code = f"import json, pytest_cudalink.stubs as s; {ask}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    version, degraded = json.loads(done.stdout)
    assert version is not None
    assert "core" not in degraded
