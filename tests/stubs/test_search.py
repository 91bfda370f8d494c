"""Where a stub looks for its library, in which order, and how it tells."""

import json
import re
import shutil
from pathlib import Path

import pytest

from pytest_cudalink.stubs import Description

from .conftest import NOWHERE, compile_c, linked, run_hidden

WHEELS = {13: "nvidia/cu13/lib/libcudart.so.13", 12: "nvidia/cuda_runtime/lib/libcudart.so.12"}
WHEELS[11] = "nvidia/cuda_runtime/lib/libcudart.so.11.0"
#: A runtime that knows nothing but its version, and what tells its generation.
RUNTIME = """
int cudaRuntimeGetVersion(int *v) { *v = VERSION; return 0; }
#if VERSION >= 12000
int cudaGraphInstantiateWithParams(void) { return 0; }
#endif
#if VERSION / 1000 == 12
int cudaGetDeviceProperties_v2(void) { return 0; }
#endif
"""


def runtime(path: Path, version: int) -> Path:
    """A library that says it is cudart of a version."""
    return compile_c(path, RUNTIME, f"-DVERSION={version}")


@pytest.fixture(scope="module")
def site(stubs, tmp_path_factory) -> Path:
    """A folder like site-packages: a package with a stub and a library that calls it; no wheels yet."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "pkg").mkdir()
    stub = shutil.copy(stubs["cudart"], folder / "pkg")
    source = """
        extern const char *stub_cudart_describe(void);
        // a jump to it, which some compilers make of a call at the end, has another caller
        const char *ask(void) { const char *volatile found = stub_cudart_describe(); return found; }
    """
    compile_c(folder / "pkg" / "caller.so", source, str(stub), "-Wl,-rpath,$ORIGIN")
    return folder


ASK = """
import ctypes, sys
before = [ctypes.CDLL(path) for path in {before!r}]
caller = ctypes.CDLL({caller!r})
caller.ask.restype = ctypes.c_char_p
print(caller.ask().decode())
"""


@pytest.fixture
def ask(site, run, tmp_path):
    """What a caller in a copy of the site finds; wheels by major, libraries that are opened before, environment."""

    def describe(wheels: tuple[int, ...] = (), before: tuple[Path, ...] = (), **variables: str | Path) -> Description:
        copy = tmp_path / "copy"
        shutil.copytree(site, copy)
        for major in wheels:
            runtime(copy / WHEELS[major], major * 1000 + 50)
        code = ASK.format(before=[str(path) for path in before], caller=str(copy / "pkg" / "caller.so"))
        done = run(code, **variables)
        assert done.returncode == 0, done.stderr
        return Description(**json.loads(done.stdout))

    return describe


OWN, LD = "CUDALINK_STUBS_CUDART", {"LD_LIBRARY_PATH": "b/lib"}
TOOLKITS = "a/lib64/libcudart.so.12 b/lib/libcudart.so.13"
MAJORS, LAST = "l/libcudart.so.11.0 l/libcudart.so.12 l/libcudart.so.13", {"LD_LIBRARY_PATH": "l", "CUDA_HOME": "none"}
WHEEL, PROCESS = "wheel beside the caller", "already in the process"
VARIABLE = "environment variable CUDALINK_STUBS_CUDART"
#: Majors of the wheels beside the caller, files by their folders, which of them are in the process, variables; and the
#: file that is taken, with the reason. A file has the version of its name.
SCENES = [
    ((11, 12, 13), "", "", {}, f"copy/{WHEELS[13]}", WHEEL),
    ((11,), "", "", {}, f"copy/{WHEELS[11]}", WHEEL),
    ((12,), "", "", {}, f"copy/{WHEELS[12]}", WHEEL),
    # what is in the process comes before all but the stub's own variable
    ((13,), "e/libcudart.so.12", "e/libcudart.so.12", {}, "e/libcudart.so.12", PROCESS),
    ((), TOOLKITS, TOOLKITS, {}, "b/lib/libcudart.so.13", PROCESS),
    ((13,), "x/named.so.12 e/libcudart.so.13", "e/libcudart.so.13", {OWN: "x/named.so.12"}, "x/named.so.12", VARIABLE),
    ((), "x/libcudart.so.12 x/libcudart.so.13", "", {OWN: "x"}, "x/libcudart.so.13", VARIABLE),
    ((), 'a"b\\c/real.so.12', "", {OWN: 'a"b\\c/real.so.12'}, 'a"b\\c/real.so.12', VARIABLE),
    # CUDA_PATH comes before CUDA_HOME, and both before the loader's path, where the newest name is the first
    ((), TOOLKITS, "", {"CUDA_PATH": "a", "CUDA_HOME": "b"} | LD, "a/lib64/libcudart.so.12", "CUDA_PATH"),
    ((), TOOLKITS, "", {"CUDA_PATH": "copy", "CUDA_HOME": "b"}, "b/lib/libcudart.so.13", "CUDA_HOME"),
    ((), MAJORS, "", LAST, "l/libcudart.so.13", "the loader's path"),
]


@pytest.mark.parametrize(("wheels", "files", "opened", "variables", "taken", "why"), SCENES)
def test_which_library_is_taken(wheels, files, opened, variables, taken, why, ask, tmp_path) -> None:
    """The variable's, the process's, the newest wheel's, a toolkit's, and at last that of the loader's path."""
    for file in files.split():
        runtime(tmp_path / file, 1000 * int(re.search(r"so\.(\d+)", file)[1]))
    answer = ask(
        wheels,
        before=tuple(tmp_path / file for file in opened.split()),
        **{name: tmp_path / value for name, value in variables.items()},
    )
    major = re.search(r"so\.(\d+)", taken)[1]
    assert (answer.file, answer.why) == (str(tmp_path / taken), why)
    assert answer.version == (f"{major}.5" if why == WHEEL else f"{major}.0")
    if "CUDA_PATH" in variables:
        assert f"CUDA_PATH={tmp_path / variables['CUDA_PATH']}" in answer.looked


@pytest.mark.parametrize("name", ["libs/libcudart-d0da41ae.so.12.9.79", "renamed.bin"])
def test_copy_in_the_process(name: str, ask, tmp_path) -> None:
    """A copy that a wheel repair tool renamed is found, and one by its SONAME; names that only begin alike are not."""
    for other in ("libcudart_static.so.12", "libcudart-stub.so.12", "libcudart.so.120", "libcudart.alt.so.12"):
        runtime(tmp_path / "other" / other, 12000)
    made = runtime(tmp_path / ("libcudart.so.12" if name == "renamed.bin" else name), 12090)
    mangled = made.rename(tmp_path / name)
    answer = ask((13,), before=(*sorted((tmp_path / "other").iterdir()), mangled))
    assert (answer.file, answer.version) == (str(mangled), "12.9")
    # what the library lacks is listed by symbol; the tiers that lack something are called degraded
    assert "cudaMalloc" in answer.missing
    assert "cudaRuntimeGetVersion" not in answer.missing
    assert answer.degraded == ["core", "optional"]


def test_override_that_is_wrong(ask) -> None:
    """A wrong override is not passed over in silence: nothing else is tried, and the text says so."""
    answer = ask((13,), CUDALINK_STUBS_CUDART=NOWHERE)
    assert answer.file is None
    assert answer.degraded == ["core", "optional"]
    assert answer.looked.startswith(f"CUDALINK_STUBS_CUDART={NOWHERE} (")
    assert "No such file" in answer.looked


def test_damaged_file_is_passed_over_and_told(ask, tmp_path) -> None:
    """A file that cannot be opened does not end the search; the text says what was wrong with it."""
    broken = tmp_path / "home" / "lib64" / "libcudart.so.13"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"not a library")
    runtime(tmp_path / "home" / "lib64" / "libcudart.so.12", 12000)
    answer = ask(CUDA_PATH=tmp_path / "home")
    assert answer.version == "12.0"
    assert f"({broken}: " in answer.looked


def test_verbose_line(ask, site, run, tmp_path) -> None:
    """Under CUDALINK_STUBS_VERBOSE=1 one line on standard error says which file was taken, its version, and why."""
    runtime(tmp_path / "libcudart.so.13", 13000)
    code = ASK.format(before=[], caller=str(site / "pkg" / "caller.so"))
    text = run(code, CUDALINK_STUBS_CUDART=tmp_path / "libcudart.so.13", CUDALINK_STUBS_VERBOSE="1").stderr
    start = f"cudalink stubs: libstub_cudart.so uses {tmp_path}/libcudart.so.13 (version 13.0, environment variable "
    assert text.startswith(start)
    assert "it lacks cudaGetErrorString, " in text
    lost = run(code, CUDALINK_STUBS_CUDART=NOWHERE, CUDALINK_STUBS_VERBOSE="1").stderr
    assert lost.startswith("cudalink stubs: libstub_cudart.so found no libcudart: looked in CUDALINK_STUBS_CUDART=")
    assert text.count("\n") == lost.count("\n") == 1
    assert run(code, CUDALINK_STUBS_CUDART=NOWHERE).stderr == ""
    assert run(code, CUDALINK_STUBS_CUDART=NOWHERE, CUDALINK_STUBS_VERBOSE="0").stderr == ""


def test_newest_of_many_toolkits(stubs, catalog, tmp_path) -> None:
    """The newest toolkit in /usr/local is taken, however many there are and in whatever order they are listed."""
    real = runtime(tmp_path / "libcudart.so.13", 13090)
    source = """
#include <stdio.h>
extern const char *stub_cudart_describe(void);
int main(void) { puts(stub_cudart_describe()); }
"""
    program = compile_c(tmp_path / "ask", source, *linked(stubs["cudart"]))
    script = f"""
for i in $(seq 10 49); do mkdir /usr/local/cuda-9.$i; done
mkdir -p /usr/local/cuda-13.9/lib64 && cp {real} /usr/local/cuda-13.9/lib64
for i in $(seq 50 89); do mkdir /usr/local/cuda-9.$i; done
exec {program}"""

    done = run_hidden(catalog.libraries["cudart"], script)
    assert done.returncode == 0, done.stderr
    description = json.loads(done.stdout)
    assert (description["file"], description["version"]) == ("/usr/local/cuda-13.9/lib64/libcudart.so.13", "13.9")
