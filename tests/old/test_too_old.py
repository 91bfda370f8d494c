"""An nvJitLink that cuda-bindings cannot use: run by ``nox -s old-nvjitlink`` on the wheels of 12.0 and 12.2."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_cudalink import probes
from pytest_cudalink.linker import Linker, LinkerOptions, ObjectCode

SAMPLES = Path(__file__).parent.parent / "data" / "artifacts"


@pytest.fixture(scope="module")
def expected() -> str:
    """The version that the session installed, as the library tells it."""
    version = os.environ.get("CUDALINK_OLD_NVJITLINK")
    if version is None:
        pytest.skip("needs an nvJitLink older than 12.3: nox -s old-nvjitlink")
    return ".".join(version.split(".")[:2])


def test_counts_as_none_and_says_why(expected: str) -> None:
    """The library is found, named with its version, and not used: the table's rows for "none" apply."""
    probes.cache_clear()
    nvjitlink = probes.nvjitlink()
    assert (str(nvjitlink.found), nvjitlink.usable) == (expected, None)
    with pytest.warns(RuntimeWarning, match=f"is nvJitLink {expected}, 12.3 or newer is needed.*pip install"):
        assert probes.nvjitlink_version() is None
    ltoir = ObjectCode.from_ltoir(SAMPLES / "12.9" / "main.ltoir")
    with pytest.raises(RuntimeError, match="nvJitLink is not available, .* 12.3 or newer"):
        Linker(ltoir, options=LinkerOptions(arch="sm_90"))


def test_one_warning_per_process(expected: str) -> None:
    """A fresh process warns once, however many linkers it makes."""
    code = (
        "import warnings; warnings.simplefilter('always')\n"
        "from pytest_cudalink import probes\n"
        "for _ in range(3): assert probes.nvjitlink_version() is None\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.count("RuntimeWarning") == 1
    assert f"nvJitLink {expected}" in done.stderr
