"""Which images a driver takes, and what it finds in them: child programs load what NVRTC compiled for them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from pytest_cudalink.linker import Program, ProgramOptions

HEAD = "from tests.emulated.cu import *\nfrom ctypes import *\nfrom pathlib import Path\n"

#: Kernels that call what is not in the image; `needs` is what the compiler leaves undefined for it.
CALLS = {
    "vprintf": 'extern "C" __global__ void kernel(int n) { printf("%d\\n", n); }',
    "__assertfail": 'extern "C" __device__ void __assertfail(const char *, const char *, unsigned, const char *, size_t);\n'
    'extern "C" __global__ void kernel(int n) { if (!n) __assertfail("n", "file", 1, "kernel", 1); }',
    "malloc": 'extern "C" __global__ void kernel(char **out) { *out = (char *)malloc(8); }',
    "free": 'extern "C" __global__ void kernel(char *block) { free(block); }',
}


@pytest.fixture
def check(on_driver):
    """Run a program that asserts, on a driver of a version; gives its output."""

    def run(program: str, version: str = "13.0", **options: object) -> str:
        done = on_driver(version, "-c", HEAD + dedent(program), **options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def compiled(tmp_path: Path, source: str, kind: str = "cubin", **options: object) -> Path:
    """Compile a program into a file."""
    file = tmp_path / f"image.{kind}"
    with Program(source, "c++", ProgramOptions(arch="sm_90", **options)) as program:
        file.write_bytes(program.compile(kind).code + b"\0")
    return file


@pytest.mark.parametrize("needs", CALLS)
def test_what_the_driver_provides_is_not_undefined(tmp_path: Path, check, needs: str) -> None:
    """A kernel that prints, asserts or allocates is found, as a function and as a kernel of a library."""
    image = compiled(tmp_path, CALLS[needs])
    assert needs.encode() + b"\0" in image.read_bytes()
    check(
        f"""
        start()
        image = Path({str(image)!r}).read_bytes()
        code, module = load(image)
        assert (code, function(module, "kernel")[0]) == (0, 0)
        library, kernel, found = c_void_p(), c_void_p(), c_void_p()
        ok(cuda.cuLibraryLoadData(byref(library), image, None, None, 0, None, None, 0))
        ok(cuda.cuLibraryGetKernel(byref(kernel), library, b"kernel"))
        ok(cuda.cuKernelGetFunction(byref(found), kernel))
        """
    )


def test_what_nobody_provides_stays_undefined(tmp_path: Path, check) -> None:
    """A function that neither the image nor the driver has stops the look-up of every kernel."""
    source = 'extern "C" __device__ int vprint(int);\nextern "C" __global__ void kernel(int *n) { *n = vprint(1); }'
    image = compiled(tmp_path, source, relocatable_device_code=True)
    check(
        f"""
        start()
        code, module = load(Path({str(image)!r}).read_bytes())
        assert (code, function(module, "kernel")[0]) == (0, 500)
        """
    )
