"""The stubs in front of real libraries: NVRTC and the CUDA runtime of every toolkit that is there, without a GPU.

Toolkits are folders with the wheels' ``nvidia``: site-packages, and those that CUDALINK_STUBS_WHEELS names
(``nox -s stubs`` unpacks 11.8, 12.0, 12.9, 13.0 and 13.2).
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_cudalink import artifacts
from pytest_cudalink.base.compiler import find_compiler
from pytest_cudalink.stubs.catalog import CATALOG_FILE, Catalog
from tools.dynamic_symbols import of_file

from .conftest import compile_c, succeed


def toolkits() -> list[Path]:
    """Folders that contain ``nvidia`` with a runtime and NVRTC."""
    named = [Path(word) for word in os.environ.get("CUDALINK_STUBS_WHEELS", "").split(os.pathsep) if word]
    return [
        folder.resolve()
        for folder in (named or map(Path, sys.path))
        if list(folder.glob("nvidia/*/lib/libcudart.so.*")) and list(folder.glob("nvidia/*/lib/libnvrtc.so.*"))
    ]


@pytest.fixture(scope="module", params=toolkits() or [None], ids=lambda folder: folder.name if folder else "none")
def wheels(request) -> Path:
    """One toolkit."""
    if request.param is None:
        pytest.skip("needs the wheels of a CUDA toolkit: pip install 'pytest-cudalink[cu13]'")
    return request.param


@pytest.fixture(scope="module")
def release(wheels) -> str:
    """Its CUDA release, by the name of NVRTC's builtins."""
    names = [path.name for path in wheels.glob("nvidia/*/lib/libnvrtc-builtins.so.*")]
    (release,) = {match[1] for name in names if (match := re.search(r"builtins\.so\.(\d+\.\d+)$", name))}
    return release


@pytest.fixture
def site(wheels, stubs, tmp_path) -> Path:
    """A folder like site-packages, with the toolkit's wheels and a package with the stubs."""
    (tmp_path / "nvidia").symlink_to(wheels / "nvidia")
    (tmp_path / "pkg").mkdir()
    for stub in stubs.values():
        shutil.copy(stub, tmp_path / "pkg")
    return tmp_path


COMPILE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef void *nvrtcProgram;
extern int nvrtcVersion(int *, int *);
extern int nvrtcCreateProgram(nvrtcProgram *, const char *, const char *, int, char **, char **);
extern int nvrtcCompileProgram(nvrtcProgram, int, const char *const *), nvrtcDestroyProgram(nvrtcProgram *);
extern int nvrtcAddNameExpression(nvrtcProgram, const char *);
extern int nvrtcGetLoweredName(nvrtcProgram, const char *, const char **);
extern int nvrtcGetPTXSize(nvrtcProgram, size_t *), nvrtcGetPTX(nvrtcProgram, char *);
extern int nvrtcGetCUBINSize(nvrtcProgram, size_t *), nvrtcGetCUBIN(nvrtcProgram, char *);
extern int nvrtcGetLTOIRSize(nvrtcProgram, size_t *), nvrtcGetLTOIR(nvrtcProgram, char *);
extern int nvrtcGetProgramLogSize(nvrtcProgram, size_t *), nvrtcGetProgramLog(nvrtcProgram, char *);
extern const char *nvrtcGetErrorString(int);
static const char source[] = "template<int N> __global__ void twice(float *x) { x[threadIdx.x] *= N; }";

static int failed(const char *call, int result)
{
  if (result) printf("%s: %d %s\n", call, result, nvrtcGetErrorString(result));
  return result;
}

#define CHECK(call) do { if (failed(#call, call)) return 1; } while (0)

static void save(const char *folder, const char *name, const char *bytes, size_t size)
{
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "wb");
  fwrite(bytes, 1, size, file);
  fclose(file);
}

int main(int count, char **arguments)
{
  const char *folder = arguments[1];
  int major, minor;
  CHECK(nvrtcVersion(&major, &minor));
  printf("version %d.%d\n", major, minor);
  for (int lto = 0; lto < 2; lto++) {
    const char *options[] = {lto ? "--gpu-architecture=compute_80" : "--gpu-architecture=sm_80", "-dlto"}, *lowered;
    nvrtcProgram program;
    size_t size;
    CHECK(nvrtcCreateProgram(&program, source, "twice.cu", 0, NULL, NULL));
    CHECK(nvrtcAddNameExpression(program, "twice<2>"));
    CHECK(nvrtcCompileProgram(program, 1 + lto, options));
    CHECK(nvrtcGetLoweredName(program, "twice<2>", &lowered));
    printf("lowered %s\n", lowered);
    if (lto) {
      CHECK(nvrtcGetLTOIRSize(program, &size));
      char *bytes = malloc(size);
      CHECK(nvrtcGetLTOIR(program, bytes));
      save(folder, "out.ltoir", bytes, size);
    } else {
      CHECK(nvrtcGetPTXSize(program, &size));
      char *ptx = malloc(size);
      CHECK(nvrtcGetPTX(program, ptx));
      save(folder, "out.ptx", ptx, size);
      CHECK(nvrtcGetCUBINSize(program, &size));
      char *cubin = malloc(size);
      CHECK(nvrtcGetCUBIN(program, cubin));
      save(folder, "out.cubin", cubin, size);
    }
    CHECK(nvrtcGetProgramLogSize(program, &size));
    char *log = calloc(1, size + 1);
    CHECK(nvrtcGetProgramLog(program, log));
    printf("log '%s'\n", log);
    CHECK(nvrtcDestroyProgram(&program));
  }
  return count == 2 ? 0 : 1;
}
"""


@pytest.fixture(scope="module")
def compiler_program(stubs, tmp_path_factory) -> Path:
    """One program, linked with the NVRTC stub; the same file is run with every toolkit."""
    folder = tmp_path_factory.mktemp("program")
    return compile_c(folder / "compile", COMPILE, str(stubs["nvrtc"]), "-Wl,-rpath,$ORIGIN")


def test_nvrtc_compiles(compiler_program, site, release, run, tmp_path) -> None:
    """One binary compiles to PTX, cubin and LTO-IR through the NVRTC that lies beside it."""
    program = shutil.copy(compiler_program, site / "pkg" / "compile")
    out = tmp_path / "out"
    out.mkdir()

    done = run(program, out, CUDALINK_STUBS_VERBOSE="1")

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [f"version {release}", *(["lowered _Z5twiceILi2EEvPf", "log ''"] * 2)]
    assert "wheel beside the caller" in done.stderr
    for kind in ("ptx", "cubin", "ltoir"):
        artifact = artifacts.inspect((out / f"out.{kind}").read_bytes())
        assert artifact.kind == kind
        assert not artifact.problems
    assert b".entry _Z5twiceILi2EEvPf" in (out / "out.ptx").read_bytes()


def test_nvrtc_error_text(site, run) -> None:
    """With a library, the error strings are the library's own."""
    code = f"""
import ctypes
stub = ctypes.CDLL({str(site / "pkg" / "libstub_nvrtc.so")!r})
stub.nvrtcGetErrorString.restype = ctypes.c_char_p
print(stub.nvrtcGetErrorString(6).decode())
"""
    assert run(code).stdout == "NVRTC_ERROR_COMPILATION\n"


def test_cudart_answers_without_a_gpu(site, release, run) -> None:
    """The runtime behind the stub tells its version and its error strings; nothing of the core tier is missing."""
    stub = site / "pkg" / "libstub_cudart.so"
    code = f"""
import ctypes
from pytest_cudalink.stubs import describe
stub = ctypes.CDLL({str(stub)!r})
version = ctypes.c_int(-1)
print(stub.cudaRuntimeGetVersion(ctypes.byref(version)), version.value)
for function in (stub.cudaGetErrorName, stub.cudaGetErrorString):
    function.restype = ctypes.c_char_p
    print(function(2).decode(), "|", function(303).decode())
found = describe({str(stub)!r})
print(found.version, found.why, "core" in found.degraded, found.file)
"""
    done = run(code)
    assert done.returncode == 0, done.stderr
    version, names, texts, place = done.stdout.splitlines()
    major, minor = map(int, release.split("."))
    assert version == f"0 {1000 * major + 10 * minor}"
    assert names == "cudaErrorMemoryAllocation | cudaErrorSharedObjectInitFailed"
    assert texts == "out of memory | shared object initialization failed"
    assert place.startswith(f"{release} wheel beside the stub False ")
    assert "/nvidia/" in place


def test_exact_entry_points(wheels, catalog) -> None:
    """Every symbol that the catalog gives for this release is exported by the release's libraries, and no later one."""
    for name, pattern in (("cudart", "libcudart.so.*"), ("nvrtc", "libnvrtc.so.*")):
        (library,) = wheels.glob(f"nvidia/*/lib/{pattern}")
        with library.open("rb") as file:
            exported = of_file(file).symbols
        (builtins,) = (p.name for p in wheels.glob("nvidia/*/lib/libnvrtc-builtins.so.*") if ".alt." not in p.name)
        release = tuple(map(int, builtins.rpartition("so.")[2].split(".")))
        for function in catalog.libraries[name].functions:
            since = tuple(map(int, function.since.split(".")))
            until = tuple(map(int, (function.until or "99.0").split(".")))
            assert (function.symbol in exported) == (since <= release <= until), function.symbol


@pytest.mark.parametrize(
    ("name", "header"),
    [("cuda", "cuda.h"), ("nvrtc", "nvrtc.h"), pytest.param("cudart", "cuda_runtime_api.h", marks=pytest.mark.apart)],
)
def test_prototypes_are_those_of_the_headers(name: str, header: str, wheels, catalog, release, tmp_path) -> None:
    """Declared once more beside the real header, every prototype of the catalog agrees with it, and every type."""
    folders = {path.parent for path in wheels.glob(f"nvidia/*/include/{header}")}
    folders |= {path.parent.parent for path in wheels.glob("nvidia/*/include/crt/host_defines.h")}
    if name == "cudart" and not list(wheels.glob("nvidia/*/include/crt/host_defines.h")):
        pytest.skip("needs the wheel with crt/host_defines.h, which 'nox -s stubs' brings")
    catalog_text = CATALOG_FILE.read_text()
    prototypes = re.findall(rf"^\[functions\.{name}\.\w+\]\nprototype = \"(.*)\"$", catalog_text, re.MULTILINE)
    functions = catalog.libraries[name].functions
    assert len(prototypes) == len(functions)
    lines = [f"#include <{header}>", "#undef cudaGetDeviceProperties"]
    now = tuple(map(int, release.split(".")))
    for prototype, function in zip(prototypes, functions, strict=True):
        since = tuple(map(int, function.since.split(".")))
        until = tuple(map(int, (function.until or "99.0").split(".")))
        changed = now < (12, 0) and function.name in ("cudaGraphInstantiate", "cuGetProcAddress")
        if since <= now <= until and not changed:
            lines.append(f"extern {prototype};")
    lines += size_checks("\n".join(lines), catalog, now[0])
    source = tmp_path / "check.c"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [
        *find_compiler(),
        "-c",
        "-o",
        str(tmp_path / "a.o"),
        "-Werror",
        *(f"-I{folder}" for folder in folders),
        str(source),
    ]
    succeed(*command)


def size_checks(declared: str, catalog: Catalog, major: int) -> list[str]:
    """C that stops the compiler where a type of the catalog has not the header's size, or is aligned more strictly."""
    lines = []
    for name, meaning in catalog.types_for(major).items():
        spelled = re.search(rf"\b(?:(?:struct|enum) )?{name}\b", declared)
        if spelled is None or re.fullmatch(r"struct \w+", meaning):  # not of this release, or never looked into
            continue
        lines.append(f"typedef {meaning} catalog_{name};")
        lines.append(f'_Static_assert(sizeof(catalog_{name}) == sizeof({spelled[0]}), "size of {name}");')
        # stricter in some headers is well: CUtensorMap is aligned to 128 bytes in CUDA 13, to 64 before
        lines.append(f'_Static_assert(_Alignof(catalog_{name}) <= _Alignof({spelled[0]}), "alignment of {name}");')
    return lines


@pytest.mark.apart
def test_catalog_is_what_its_script_makes() -> None:
    """The catalog comes from the headers and libraries of four releases, by its script."""
    named = {folder.name: folder for folder in toolkits()}
    wanted = ("11.8", "12.0", "12.9", "13.0")
    if not named.keys() >= set(wanted):
        pytest.skip("needs the wheels of four releases: 'nox -s stubs' brings them")
    script = [sys.executable, "-m", "tools.make_catalog", *(f"{name}={named[name]}" for name in wanted)]
    root = Path(__file__).parents[2]
    done = subprocess.run(script, cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == CATALOG_FILE.read_text(encoding="utf-8")
