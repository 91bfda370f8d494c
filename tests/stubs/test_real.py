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
from pytest_cudalink.stubs.catalog import CATALOG_FILE, Catalog, Function
from tools.dynamic_symbols import of_file

from .conftest import compile_c, loaded, succeed


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

#define CHECK(call) \
  do { \
    int result = call; \
    if (result) return printf("%s: %d %s\n", #call, result, nvrtcGetErrorString(result)), 1; \
  } while (0)
#define SAVE(KIND, name) \
  do { \
    CHECK(nvrtcGet##KIND##Size(program, &size)); \
    char *bytes = malloc(size), path[4096]; \
    CHECK(nvrtcGet##KIND(program, bytes)); \
    snprintf(path, sizeof path, "%s/out." name, arguments[1]); \
    FILE *file = fopen(path, "wb"); \
    fwrite(bytes, 1, size, file); \
    fclose(file); \
  } while (0)

int main(int count, char **arguments)
{
  int major, minor;
  CHECK(nvrtcVersion(&major, &minor));
  printf("version %d.%d\n%s\n", major, minor, nvrtcGetErrorString(6));
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
      SAVE(LTOIR, "ltoir");
    } else {
      SAVE(PTX, "ptx");
      SAVE(CUBIN, "cubin");
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
    """One binary compiles to PTX, cubin and LTO-IR through the NVRTC beside it, whose error texts it has."""
    program = shutil.copy(compiler_program, site / "pkg" / "compile")
    out = tmp_path / "out"
    out.mkdir()
    done = run(program, out, CUDALINK_STUBS_VERBOSE="1")
    assert done.returncode == 0, done.stdout + done.stderr
    steps = ["lowered _Z5twiceILi2EEvPf", "log ''"]
    assert done.stdout.splitlines() == [f"version {release}", "NVRTC_ERROR_COMPILATION", *steps, *steps]
    assert "wheel beside the caller" in done.stderr
    for kind in ("ptx", "cubin", "ltoir"):
        artifact = artifacts.inspect((out / f"out.{kind}").read_bytes())
        assert (artifact.kind, artifact.problems) == (kind, ())
    assert b".entry _Z5twiceILi2EEvPf" in (out / "out.ptx").read_bytes()


def test_cudart_answers_without_a_gpu(site, release, run) -> None:
    """The runtime behind the stub tells its version and its error strings; nothing of the core tier is missing."""
    stub = site / "pkg" / "libstub_cudart.so"
    code = loaded(stub, "cudaGetErrorName", "cudaGetErrorString")
    code += f"""
from pytest_cudalink.stubs import describe
version = ctypes.c_int(-1)
print(stub.cudaRuntimeGetVersion(ctypes.byref(version)), version.value)
for function in (stub.cudaGetErrorName, stub.cudaGetErrorString):
    print(function(2).decode(), "|", function(303).decode())
found = describe({str(stub)!r})
print(found.version, found.why, "core" in found.degraded, found.file)
"""
    done = run(code)
    assert done.returncode == 0, done.stderr
    *answers, place = done.stdout.splitlines()
    major, minor = map(int, release.split("."))
    assert answers == [
        f"0 {1000 * major + 10 * minor}",
        "cudaErrorMemoryAllocation | cudaErrorSharedObjectInitFailed",
        "out of memory | shared object initialization failed",
    ]
    assert place.startswith(f"{release} wheel beside the stub False ")
    assert "/nvidia/" in place


def is_in(release: str, function: Function) -> bool:
    """Whether a release has a function, by the catalog."""
    since, now, until = (
        tuple(map(int, text.split("."))) for text in (function.since, release, function.until or "99.0")
    )
    return since <= now <= until


def test_exact_entry_points(wheels, release, catalog) -> None:
    """Every symbol that the catalog gives for this release is exported by the release's libraries, and no later one."""
    for name in ("cudart", "nvrtc"):
        (library,) = wheels.glob(f"nvidia/*/lib/lib{name}.so.*")
        with library.open("rb") as file:
            exported = of_file(file).symbols
        for function in catalog.libraries[name].functions:
            assert (function.symbol in exported) == is_in(release, function), function.symbol


@pytest.mark.parametrize(
    ("name", "header"),
    [("cuda", "cuda.h"), ("nvrtc", "nvrtc.h"), pytest.param("cudart", "cuda_runtime_api.h", marks=pytest.mark.apart)],
)
def test_prototypes_are_those_of_the_headers(name: str, header: str, wheels, catalog, release, tmp_path) -> None:
    """Declared once more beside the real header, every prototype of the catalog agrees with it, and every type."""
    folders = {path.parent for path in wheels.glob(f"nvidia/*/include/{header}")}
    crt = {path.parent.parent for path in wheels.glob("nvidia/*/include/crt/host_defines.h")}
    if name == "cudart" and not crt:
        pytest.skip("needs the wheel with crt/host_defines.h, which 'nox -s stubs' brings")
    catalog_text = CATALOG_FILE.read_text()
    prototypes = re.findall(rf"^\[functions\.{name}\.\w+\]\nprototype = \"(.*)\"$", catalog_text, re.MULTILINE)
    lines, major = [f"#include <{header}>", "#undef cudaGetDeviceProperties"], int(release.partition(".")[0])
    for prototype, function in zip(prototypes, catalog.libraries[name].functions, strict=True):
        changed = major < 12 and function.name in ("cudaGraphInstantiate", "cuGetProcAddress")
        if is_in(release, function) and not changed:
            lines.append(f"extern {prototype};")
    lines += size_checks("\n".join(lines), catalog, major)
    source = tmp_path / "check.c"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    includes = [f"-I{folder}" for folder in folders | crt]
    succeed(*find_compiler(), "-c", "-o", tmp_path / "a.o", "-Werror", *includes, source)


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
