"""Published libraries, unmodified, on emulated drivers. `nox -s libraries` makes an environment for each."""

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from pytest_cudalink import emulator, toolchains
from tests.emulator import checkers

PROGRAMS = Path(__file__).parent / "programs"
LINKS = os.environ.get("CUDALINK_LINKS", "200")


def needs(library: str, *versions: str) -> None:
    """Skip the test in an environment that was made for another library."""
    try:
        version = metadata.version(library)
    except metadata.PackageNotFoundError:
        version = "none"
    if os.environ.get("CUDALINK_LIBRARY") != library or (versions and version not in versions):
        pytest.skip(f"needs the environment of {library} {' or '.join(versions)} (found {version}): nox -s libraries")


def run(program: str, version: str, *arguments: str) -> dict[str, object]:
    """What a program prints on an emulated driver of a version."""
    toolchains.add(version)
    command = [sys.executable, str(PROGRAMS / f"{program}.py"), *arguments]
    env = {**os.environ, **emulator.emulation_for(version).environment()}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def toolkit() -> tuple[int, int]:
    """CUDA release of NVRTC's wheel."""
    for name in ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"):
        try:
            major, minor = metadata.version(name).split(".")[:2]
            return int(major), int(minor)
        except metadata.PackageNotFoundError:
            continue
    raise AssertionError("no NVRTC wheel")


@pytest.mark.parametrize("version", ["12.9", "13.0", "13.2"])
def test_cuda_core(version: str) -> None:
    """Cuda-core compiles and links PTX and LTO-IR, loads the module and finds the kernel, and no other."""
    needs("cuda-core", "1.2.2")
    if tuple(map(int, version.split("."))) < toolkit():
        pytest.skip(f"a driver {version} is older than this toolkit: the environment of CUDA {version} has the test")
    facts = run("cuda_core_links", version)
    major, minor = version.split(".")
    assert facts["driver"] == int(major) * 1000 + int(minor) * 10
    assert facts["kernel"] == 1024
    assert facts["ptx registers"] > facts["ltoir registers"] > 0  # inlined, the function needs fewer
    assert "CUDA_ERROR_NOT_FOUND" in facts["ptx missing"]


def test_cuda_core_breaks_the_contract() -> None:
    """The option values of these releases die before the link is complete: every link is noticed."""
    needs("cuda-core", "0.7.0", "1.1.0")
    facts = run("cuda_core_lifetimes", "13.0", LINKS)
    assert facts["red"] == facts["links"] == int(LINKS)


def test_cuda_core_keeps_the_contract() -> None:
    """No false alarm over as many links of the releases that keep their memory."""
    needs("cuda-core", "1.1.1", "1.2.2")
    facts = run("cuda_core_lifetimes", "13.0", LINKS)
    assert (facts["red"], facts["links"], facts["options"]) == (0, int(LINKS), [])


@pytest.mark.skipif(bool(checkers.valgrind_missing()), reason=checkers.valgrind_missing())
def test_valgrind_agrees_on_cuda_core(tmp_path) -> None:
    """Valgrind sees an invalid write in the releases that break the contract, and none in those that keep it."""
    needs("cuda-core", "0.7.0", "1.1.0", "1.1.1", "1.2.2")
    log = tmp_path / "valgrind.txt"
    code = checkers.python_under_valgrind(log, PROGRAMS / "cuda_core_lifetimes.py", "3")
    breaks = metadata.version("cuda-core") in ("0.7.0", "1.1.0")
    assert ("Invalid write" in log.read_text()) == breaks, log.read_text()[-2000:]
    assert code == 0 or breaks  # a log buffer may be unmapped when the driver writes to it: that ends the process


def test_numba_cuda() -> None:
    """Numba-cuda compiles eagerly, which links, loads and asks for the kernel's attributes."""
    needs("numba-cuda")
    facts = run("numba_eager", "13.0")
    assert facts["capability"] == [9, 0]
    assert facts["signatures"] == 1
    assert facts["registers"] > 0


def test_cuda_bindings() -> None:
    """Cuda-bindings asks for some 500 entry points, links, loads, copies; a launch is not supported."""
    needs("cuda-bindings")
    version = ".".join(map(str, toolkit()))
    facts = run("bindings_links", version)
    assert facts["size"] > 4000
    assert (facts["sevens"], facts["launch"], facts["missing"]) == (True, 801, 500)


def test_cupy() -> None:
    """CuPy imports, and its low-level linkCreate makes a module."""
    needs("cupy-cuda13x")
    facts = run("cupy_link", "13.0")
    assert (facts["image"], facts["function"]) == (True, True)


CCCL = """
import numpy as np
import cuda.compute as cc

def test_reduce():
    array = cc.ProxyArray(np.int32)
    start = np.array([0], dtype=np.int32)
    cc.make_reduce_into(d_in=array, d_out=array, op=cc.OpKind.PLUS, h_init=start, compute_capability=90)
"""


def run_pytest(folder: Path, backend: str, text: str) -> tuple[int, str]:
    """Exit code and output of a pytest that forces a backend, on an emulated driver."""
    folder.joinpath("test_it.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "--cudalink-driver=13.0", f"--force-backend={backend}", "test_it.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize("backend", ["auto", "driver"])
def test_cuda_cccl(tmp_path: Path, backend: str) -> None:
    """The C++ of cuda-cccl links through libnvJitLink itself: seen, and a failure where the driver is forced."""
    needs("cuda-cccl")
    code, said = run_pytest(tmp_path, backend, CCCL)
    links = "1 link in your code was not steered" if backend == "driver" else "1 link in your code"
    assert f"{links} (libnvJitLink, called by libcccl.c.parallel.so): 1 on nvJitLink" in said, said
    assert code == (backend == "driver"), said
    assert ("libcccl.c.parallel.so linked on nvJitLink" in said) == (backend == "driver")


WARP = """
import warp as wp

@wp.kernel
def kernel(out: wp.array(dtype=float)):
    out[wp.tid()] = 1.0

def test_load(tmp_path):
    wp.config.kernel_cache_dir = str(tmp_path)
    wp.load_module(device="cuda:0")
"""


def test_warp(tmp_path: Path) -> None:
    """What warp-lang links cannot be seen, because its copy of nvJitLink is static; what it loads is said."""
    needs("warp-lang")
    code, said = run_pytest(tmp_path, "driver", WARP)
    assert code == 0, said
    assert "in your code" not in said
    assert "the emulated driver loaded at least 1 module that no seen link made: precompiled code" in said
