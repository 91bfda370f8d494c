"""The example projects build wheels with CMake and with Meson, which import without CUDA and use any that is there."""

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from pytest_cudalink.audit import audit
from pytest_cudalink.stubs import c_source

from .conftest import NOWHERE, compile_c, succeed
from .test_search import runtime

pytestmark = pytest.mark.apart

EXAMPLES = Path(__file__).parent.parent.parent / "docs" / "examples"
BACKENDS = {"stubs-cmake": "scikit_build_core", "stubs-meson": "mesonpy"}


@pytest.fixture(scope="module", params=BACKENDS)
def wheel(request, tmp_path_factory) -> Path:
    """The wheel of one example, built in a copy of it with the backend that it names."""
    if find_spec(BACKENDS[request.param]) is None and not os.environ.get("CUDALINK_STUBS_EXAMPLES"):
        pytest.skip("needs CMake, Ninja, scikit-build-core and meson-python: 'nox -s stubs-examples' brings them")
    folder = tmp_path_factory.mktemp(request.param) / "project"
    shutil.copytree(EXAMPLES / request.param, folder)
    # the backends look for cudalink, cmake, meson and ninja where the interpreter's commands are
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist"]
    succeed(*command, cwd=folder, env=environment)
    (built,) = (folder / "dist").glob("*.whl")
    return built


@pytest.fixture
def site(wheel, tmp_path) -> Path:
    """The wheel, unpacked."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    return tmp_path / "site"


USE = "import sys; sys.path.insert(0, {site!r}); import devices; print(*devices.runtime()); print(*devices.compiler())"


def test_wheel_needs_no_cuda(wheel) -> None:
    """The audit passes: no CUDA library is needed to load it, and the stubs are in it."""
    audited = audit(wheel)
    audited.check("11", "12", "13", "none")
    names = {file.path.rpartition("/")[2] for file in audited.files}
    assert "libdevices_cudart.so" in names
    assert names & {"libstub_nvrtc.so", "libdevices_nvrtc.so"}
    symbols = next(file for file in audited.files if file.path.endswith("libdevices_cudart.so"))
    assert symbols.soname == "libdevices_cudart.so"


def test_imports_without_cuda(site, run) -> None:
    """Without any CUDA library it imports and tells what is missing."""
    done = run(USE.format(site=str(site)), CUDALINK_STUBS_CUDART=NOWHERE, CUDALINK_STUBS_NVRTC=NOWHERE)
    assert done.returncode == 0, done.stderr
    runtime_line, compiler_line = done.stdout.splitlines()
    assert runtime_line.startswith("303 0 0 libdevices_cudart.so: no libcudart was found; looked in ")
    assert compiler_line == "11 0 0"


@pytest.mark.parametrize("version", [11080, 12090, 13000])
def test_uses_the_wheels_beside_it(version: int, site, run) -> None:
    """The same wheel uses the CUDA wheels that are installed beside it, of every major."""
    major = version // 1000
    folder = site / "nvidia" / ("cu13" if major == 13 else "cuda_runtime") / "lib"
    runtime(folder / f"libcudart.so.{'11.0' if major == 11 else major}", version)
    nvrtc = site / "nvidia" / ("cu13" if major == 13 else "cuda_nvrtc") / "lib"
    answer = f"int nvrtcVersion(int *a, int *b) {{ *a = {major}; *b = {version % 1000 // 10}; return 0; }}"
    compile_c(nvrtc / f"libnvrtc.so.{'11.2' if major == 11 else major}", answer)
    done = run(USE.format(site=str(site)))
    runtime_line, compiler_line = done.stdout.splitlines()
    assert runtime_line.startswith(f"0 {version} 0 ")
    assert compiler_line == f"0 {major} {version % 1000 // 10}"


def test_symbol_file_of_the_documentation(tmp_path, run) -> None:
    """The symbol file that the page on stubs shows builds a stub with exactly its functions."""
    (stub,) = c_source.build_stubs(["cudart"], tmp_path, symbols=EXAMPLES / "stubs-symbols.toml", prefix="mylib")
    code = f"from pytest_cudalink.stubs import describe; print(*describe({str(stub)!r}).missing)"
    expected = "cudaGetErrorString cudaGetDevice cudaMemPoolCreate\n"
    assert run(code, CUDALINK_STUBS_CUDART=NOWHERE).stdout == expected


CMAKE_LISTS = """
cmake_minimum_required(VERSION 3.20...4.0)
project(plain LANGUAGES CXX)
find_package(cudalink_stubs REQUIRED)
cudalink_add_stubs(PREFIX plain LIBRARIES cudart HEADERS 12)
add_executable(plain plain.cpp)
target_link_libraries(plain PRIVATE plain::cudart cudalink::cuda)
"""
PLAIN = """
#include <plain_cudart.h>
#include <stub_cuda.h>
#include <cstdio>
extern "C" int cudaGetDeviceCount(int *), cuInit(unsigned);
int main()
{
  int n = -1;
  int runtime = cudaGetDeviceCount(&n), driver = cuInit(0);
  std::printf("%d %d %d %c%c\\n", runtime, n, driver, *plain_cudart_describe(), *stub_cuda_describe());
}
"""


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs CMake: 'nox -s stubs-examples' brings it")
def test_plain_cmake_project(tmp_path, run) -> None:
    """A C++ project finds the package by ``--cmake-dir``, and uses prebuilt and own stubs with their headers."""
    (tmp_path / "CMakeLists.txt").write_text(CMAKE_LISTS, encoding="utf-8")
    (tmp_path / "plain.cpp").write_text(PLAIN, encoding="utf-8")
    ask = [sys.executable, "-m", "pytest_cudalink.cli", "stubs", "--cmake-dir"]
    folder = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    configure = ["cmake", "-S", str(tmp_path), "-B", str(tmp_path / "build"), f"-Dcudalink_stubs_DIR={folder}"]
    for command in (
        [*configure, f"-DPython_EXECUTABLE={sys.executable}"],
        ["cmake", "--build", str(tmp_path / "build")],
    ):
        succeed(*command)
    done = run(tmp_path / "build" / "plain", CUDALINK_STUBS_CUDART=NOWHERE, CUDALINK_STUBS_CUDA=NOWHERE)
    assert done.stdout == "303 0 303 {{\n"
