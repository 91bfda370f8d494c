"""Known-bad entries with the released wheels, each in a separate folder. ``nox -s known-bad`` runs this."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_cudalink.compat import known_bad

FOLDER = os.environ.get("CUDALINK_KNOWN_BAD")
pytestmark = [
    pytest.mark.apart,
    pytest.mark.skipif(FOLDER is None, reason="needs published wheels: 'nox -s known-bad' installs them"),
]

IMPORT = "import cuda.core; print('works')"
# the redirection to numba-cuda is in a .pth file, which no folder of PYTHONPATH has read
IMPORT_NUMBA = "import os, site; site.addsitedir(os.environ['PYTHONPATH']); import numba.cuda; print('works')"
NUMBA = {"numba": "0.63.1", "llvmlite": "0.46.0", "numpy": "2.3.5"}
LINK = r"""
import warnings
from cuda.core import Device, Linker, LinkerOptions, ObjectCode
warnings.simplefilter("ignore")
Device().set_current()
ptx = b".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n"
Linker(ObjectCode.from_ptx(ptx), options=LinkerOptions(arch="sm_80")).link("cubin")
print("works")
"""
NVCC = """
import os, pathlib, subprocess, sys
folder = pathlib.Path(os.environ["PYTHONPATH"])
source = folder / "k.cu"
source.write_text("__global__ void k(int *p) { *p = 1; }")
nvcc = (folder / "nvidia/cu13/bin/nvcc", "-c", source, "-o", folder / "k.o", "-arch=sm_90")
subprocess.run(nvcc, check=True, stderr=sys.stdout)
print("works")
"""


def toolchain(nvcc: str, **other: str) -> dict[str, str]:
    """A compiler with what it requires, of one release but for some parts."""
    releases = {"cuda-nvcc": nvcc, "nvvm": nvcc, "cuda-runtime": nvcc, "cuda-crt": nvcc}
    releases |= {name.replace("_", "-"): release for name, release in other.items()}
    return {f"nvidia-{name}": f"{release}.*" for name, release in releases.items()}


BINDINGS, CRT, NVVM = "cuda-bindings", "nvidia-cuda-crt", "nvidia-nvvm"
NUMBA |= {"numba-cuda": "0.20.1", BINDINGS: "13.0.3"}
OLD_NVJITLINK = {"cuda-core": "1.1.1", BINDINGS: "12.9.10", "nvidia-nvjitlink-cu12": "12.2.140"}
#: Entry, versions that meet it, what is other in those that do not, the program that fails, and a part of its error.
CASES = [
    (
        *("cuda-core-without-bindings", {"cuda-core": "1.2.2"}, {BINDINGS: "13.0.3"}),
        *(IMPORT, "cannot import name 'bindings'"),
    ),
    (
        *("cuda-core-bindings-12-8", {"cuda-core": "0.6.0", BINDINGS: "12.8.0"}, {BINDINGS: "12.9.0"}),
        *(IMPORT, "No module named 'cuda.bindings.cynvvm'"),
    ),
    ("numba-cuda-0-20-without-core", NUMBA, {"cuda-core": "0.3.2"}, IMPORT_NUMBA, "No module named 'cuda.core'"),
    (
        *("cuda-core-1-0-0-bindings-13-0", {"cuda-core": "1.0.0", BINDINGS: "13.0.3"}, {BINDINGS: "13.1.1"}),
        *(IMPORT, "does not export expected C function cuDevSmResourceSplit"),
    ),
    (
        *("cuda-core-old-nvjitlink", OLD_NVJITLINK, {"nvidia-nvjitlink-cu12": "12.3.101"}),
        *(LINK, "FunctionNotFoundError: function nvJitLinkVersion is not found"),
    ),
    ("nvvm-13-0-newer-crt", toolchain("13.0", cuda_crt="13.5"), {CRT: "13.0.*"}, NVCC, "__cudaLaunch"),
    ("nvvm-13-1-crt-13-0", toolchain("13.5", cuda_crt="13.0"), {CRT: "13.1.*"}, NVCC, "__cudaLaunch"),
    ("nvvm-13-0-newer-crt", toolchain("13.2", nvvm="13.0"), {CRT: "13.0.*"}, NVCC, "__cudaLaunch"),
    ("nvcc-13-3-older-nvvm", toolchain("13.5", nvvm="13.1"), {NVVM: "13.2.*"}, NVCC, "--simt-only"),
]


def run(versions: dict[str, str], program: str) -> str:
    """Output of a program on an emulated driver of CUDA 12.9, with these versions installed in a folder."""
    wanted = [f"{name}=={version}" for name, version in versions.items()]
    folder = Path(FOLDER) / re.sub(r"[^\w.]+", "-", "-".join(wanted))
    if not folder.exists():
        install = ("uv", "pip", "install", "-q", "--python", sys.executable, "--target", str(folder))
        subprocess.run([*install, *wanted, "numpy"], check=True)
    # -S hides the packages of this environment; cuda.pathfinder does not look for libraries in the folder
    libraries = os.pathsep.join(str(path) for path in folder.glob("nvidia/*/lib"))
    environment = {**os.environ, "PYTHONPATH": str(folder), "LD_LIBRARY_PATH": libraries}
    start = [sys.executable, "-m", "pytest_cudalink.cli", "driver", "run", "--version", "12.9", "--"]
    done = subprocess.run(
        [*start, sys.executable, "-S", "-c", program], capture_output=True, text=True, check=False, env=environment
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize(("entry", "bad", "other", "program", "error"), CASES, ids=[case[0] for case in CASES])
def test_entry(entry, bad, other, program, error) -> None:
    """The combination fails with the text of the entry, and the nearest one that does not meet it works."""
    good = bad | other
    versions = [{name: version.replace("*", "0") for name, version in given.items()} for given in (bad, good)]
    assert [entry in {met.id for met in known_bad.known_bad(version)} for version in versions] == [True, False]
    assert error in run(bad, program)
    output = run(good, program)
    assert output.endswith("works\n"), output
