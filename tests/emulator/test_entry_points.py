"""Which functions a driver of a version has: by dlsym, by the loader, and by cuGetProcAddress."""

import fnmatch
import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from pytest_cudalink import emulator
from pytest_cudalink.versions import CudaVersion
from tests.compiled import compile_c
from tests.emulator.conftest import HEAD, programs

TABLE = Path(emulator.__file__).parents[1] / "data" / "emulator" / "functions.toml"
REAL = tomllib.loads((Path(__file__).parent.parent / "data" / "exports.toml").read_text(encoding="utf-8"))["libcuda"]

#: Calls a function that it is linked with, and one that it asks the loader for.
PROGRAM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int cuDriverGetVersion(int *);
int cuCtxGetDevice_v2(int *, void *);
int main(int count, char **arguments) {
  int version = 0;
  printf("%d ", cuDriverGetVersion(&version));
  printf("%d ", dlsym(RTLD_DEFAULT, "cuCtxGetDevice_v2") != NULL);
  fflush(stdout);
  if (count > 1) printf("%d ", cuCtxGetDevice_v2(&version, NULL));
  return 0;
}
"""


def exported(version: str) -> set[str]:
    """The names that a real driver of a version exports, or that the table says it would."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    wanted = CudaVersion.parse(version)
    names = {
        name
        for release, added in table["symbols"].items()
        if release != "never" and CudaVersion.parse(release) <= wanted
        for name in added
    }
    return names | {name for name, known in table["debugger"].items() if CudaVersion.parse(known["since"]) <= wanted}


def test_the_table_gives_what_real_drivers_export() -> None:
    """The table, made from headers, has exactly the dynamic symbols of four real drivers."""
    assert list(REAL) == ["12.0", "12.2", "12.4", "13.0"]
    real: set[str] = set()
    for version, added in REAL.items():
        real |= set(added)

        assert exported(version) == real


@pytest.mark.parametrize(
    "version",
    ["12.9", "13.0", *(pytest.param(version, marks=pytest.mark.slow) for version in ("12.0", "12.4", "13.5"))],
)
def test_a_driver_exports_what_its_version_has(version: str, check) -> None:
    """No more and no less than the table says is found by dlsym; what cuGetProcAddress gives is what dlsym gives."""
    everything, number = exported("99.0"), CudaVersion.parse(version)
    asked = number.major * 1000 + number.minor * 10
    out = check(
        f"""
        found = [name for name in {sorted(everything)} if hasattr(cuda, name)]
        print(*found)
        for name in found:
            address, status = c_void_p(), c_int(-1)
            code = cuda.cuGetProcAddress_v2(name.encode(), byref(address), {asked}, c_uint64(0), byref(status))
            if (code, status.value) == (0, 0):
                plain = [cast(getattr(cuda, form), c_void_p).value for form in found if form.startswith(name)]
                assert address.value in plain, name
        """,
        version=version,
    )
    assert set(out.split()) == exported(version)


PROGRAMS = {
    "names_that_no_symbol_has": """
# The profiler's and OpenGL's functions are found by name, as on a real 13.0; the debugger's names are exported.
since = {"cuProfilerStart": 4000, "cuProfilerStop": 4000, "cuGLGetDevices": 6050, "cuVDPAUGetDevice": 3010}
since |= {"cuGraphicsGLRegisterBuffer": 3000, "cuGraphicsGLRegisterImage": 3000}
for name, version in since.items():
    ask = lambda at: get(cuda.cuGetProcAddress_v2, name.encode(), c_void_p, at, c_uint64(0), c_int)
    address, status = ask(version)
    assert address and (status, ask(2000)[1]) == (0, 2), name
assert c_int.in_dll(cuda, "cudbgDebuggerInitialized").value == 0
assert cuda.cudbgGetAPI(0, 0, 0, None) != 0
""",
    "older_forms_are_named_as_they_were_called": """
# A form that answers as the next one keeps its name in events, and works where the driver lacks the next one.
from pytest_cudalink.base.tables import read_table

twins = read_table("emulator/functions.toml")["twins"]
start()
for older, newer in twins.items():
    code = getattr(cuda, older)(*map(c_void_p, [0] * 8))
    assert (last_event()["call"], last_event()["result"]) == (older, code)
    if hasattr(cuda, newer):
        assert getattr(cuda, newer)(*map(c_void_p, [0] * 8)) == code, newer
        assert last_event()["call"] == newer
assert not hasattr(cuda, "cuGraphAddNode_v3")
new(cuda.cuGraphAddNode_v2, new(cuda.cuGraphCreate, 0), None, None, c_size_t(0), (c_int * 64)(5))
""",
}
test_programs = programs(PROGRAMS, older_forms_are_named_as_they_were_called={"version": "12.9"})


def test_traits_are_of_functions_that_exist() -> None:
    """Each name and pattern of a trait means a symbol; a misspelt one would have no effect."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    symbols = [name for names in table["symbols"].values() for name in names]
    lists = (*table["traits"].values(), *table["dead-handles"].values(), table["null-pointers"])
    wanted = {name for names in lists for name in names}
    assert {name for name in wanted if not fnmatch.filter(symbols, name)} == set()


@pytest.mark.parametrize("binding", ["lazy", "now"])
def test_a_program_linked_by_its_development_name(tmp_path: Path, binding: str) -> None:
    """`-lcuda` links a program, which calls the functions of libcuda.so.1, whatever name it opens the library by."""
    source = """
        #include <dlfcn.h>
        int cuInit(unsigned), cuDeviceGetCount(int *);
        int main(void) {
          int count = 0, (*function)(unsigned) = cuInit;
          void *opened = dlopen("libcuda.so", RTLD_NOW), *real = dlopen("libcuda.so.1", RTLD_NOW);
          if (function(0) || cuDeviceGetCount(&count) || count != 1) return 1;
          return dlsym(opened, "cuInit") != (void *)cuInit || dlsym(real, "cuInit") != (void *)cuInit;
        }
    """
    flags = (f"-L{emulator.library_folder()}", "-lcuda", f"-Wl,-z,{binding}")
    program = compile_c(tmp_path / "program", source, *flags)
    subprocess.run([program], env={**os.environ, **emulator.emulation_for("13.0").environment()}, check=True)


@pytest.mark.parametrize("binding", ["lazy", "now"])
@pytest.mark.parametrize("version", ["12.9", "13.0"])
def test_a_linked_program(tmp_path: Path, version: str, binding: str) -> None:
    """The loader does not find a function that the version lacks when it is called for the first time.

    A program whose functions are all looked up before the driver has started gets 801.
    """
    driver = emulator.library_folder() / "libcuda.so.1"
    program = compile_c(tmp_path / "program", PROGRAM, str(driver), f"-Wl,-z,{binding}")
    planned = emulator.emulation_for(version)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **planned.environment()}
        return subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, check=False)

    assert run().stdout == f"0 {int(version == '13.0')} "
    called = run("call")
    if version == "13.0":
        assert called.stdout == "0 1 3 "
    elif binding == "now":
        assert called.stdout == "0 0 801 "
    else:
        assert called.returncode == 127
        assert "undefined symbol: cuCtxGetDevice_v2" in called.stderr


def test_a_caller_that_passes_too_few_arguments(on_driver) -> None:
    """The forms with a context say, when they get something else, that the caller wanted the form without; once."""
    program = """
start()
device, garbage = c_int(), c_void_p(0x7f00)
for _ in range(2):
    assert cuda.cuCtxGetDevice_v2(byref(device), garbage) == 201
    print(last_event()["note"])
    assert cuda.cuCtxSynchronize_v2(garbage) == 201
"""
    done = on_driver("13.0", "-c", HEAD + program)
    assert done.returncode == 0, done.stderr
    mistake = "cuCtxGetDevice_v2, introduced in 13.0, was given the context 0x7f00, which is not one; a caller of "
    assert mistake + "cuCtxGetDevice(device) must not be given this form" in done.stdout
    assert done.stderr.count(mistake) == 1
    assert done.stderr.count("a caller of cuCtxSynchronize()") == 1
