"""Where a stub looks for its library, in which order, and how it tells."""

from __future__ import annotations

import json
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
    source = "extern const char *stub_cudart_describe(void); const char *ask(void) { return stub_cudart_describe(); }"
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


def test_newest_wheel_beside_the_caller(ask, tmp_path) -> None:
    """Wheels of three majors lie beside the caller: the newest is taken."""
    found = ask((11, 12, 13))
    assert (found.version, found.why) == ("13.5", "wheel beside the caller")
    assert found.file == str(tmp_path / "copy" / WHEELS[13])


@pytest.mark.parametrize("major", [11, 12])
def test_older_wheel_alone(major: int, ask) -> None:
    """With one wheel only, that one is taken."""
    assert ask((major,)).version == f"{major}.5"


def test_process_first(ask, tmp_path) -> None:
    """A copy that is already in the process is taken before a newer one that lies beside the caller."""
    loaded = runtime(tmp_path / "elsewhere" / "libcudart.so.12", 12010)
    found = ask((13,), before=(loaded,))
    assert (found.file, found.why) == (str(loaded), "already in the process")


def test_newest_of_the_process(ask, tmp_path) -> None:
    """Of two copies in the process the newest is taken."""
    old, new = (runtime(tmp_path / f"v{n}" / f"libcudart.so.{n}", n * 1000) for n in (12, 13))
    assert ask(before=(old, new)).file == str(new)


def test_mangled_copy_in_the_process(ask, tmp_path) -> None:
    """A copy that a wheel repair tool renamed is found; libraries whose names only begin alike are not."""
    for name in ("libcudart_static.so.12", "libcudart-stub.so.12", "libcudart.so.120", "libcudart.alt.so.12"):
        runtime(tmp_path / "other" / name, 12000)
    mangled = runtime(tmp_path / "libs" / "libcudart-d0da41ae.so.12.9.79", 12090)
    others = sorted((tmp_path / "other").iterdir())
    found = ask((13,), before=(*others, mangled))
    assert (found.file, found.version) == (str(mangled), "12.9")


def test_process_by_soname(ask, tmp_path) -> None:
    """A copy in the process counts by its SONAME, whatever its file is called."""
    file = runtime(tmp_path / "libcudart.so.12", 12000).rename(tmp_path / "renamed.bin")
    assert ask((13,), before=(file,)).file == str(file)


def test_cuda_path_then_cuda_home(ask, tmp_path) -> None:
    """CUDA_PATH is looked at before CUDA_HOME, both after the wheels; lib64 is a folder of a toolkit."""
    runtime(tmp_path / "a" / "lib64" / "libcudart.so.12", 12000)
    runtime(tmp_path / "b" / "lib" / "libcudart.so.13", 13000)
    found = ask(CUDA_PATH=tmp_path / "a", CUDA_HOME=tmp_path / "b", LD_LIBRARY_PATH=tmp_path / "b" / "lib")
    assert (found.version, found.why) == ("12.0", "CUDA_PATH")
    assert f"CUDA_PATH={tmp_path / 'a'}" in found.looked


def test_cuda_home(ask, tmp_path) -> None:
    """CUDA_HOME counts where CUDA_PATH has nothing."""
    runtime(tmp_path / "b" / "lib" / "libcudart.so.13", 13000)
    (tmp_path / "a").mkdir()
    assert ask(CUDA_PATH=tmp_path / "a", CUDA_HOME=tmp_path / "b").why == "CUDA_HOME"


def test_loaders_path(ask, tmp_path) -> None:
    """The loader's path is looked at last, the newest name first."""
    for major in (11, 12, 13):
        runtime(tmp_path / "ld" / Path(WHEELS[major]).name, major * 1000)
    found = ask(LD_LIBRARY_PATH=tmp_path / "ld", CUDA_HOME=tmp_path / "nothing")
    assert (found.version, found.why) == ("13.0", "the loader's path")


def test_override_beats_all(ask, tmp_path) -> None:
    """The environment names a file: it is taken before a copy in the process and before every other place."""
    named = runtime(tmp_path / "named.so", 12030)
    loaded = runtime(tmp_path / "elsewhere" / "libcudart.so.13", 13000)
    found = ask((13,), before=(loaded,), CUDALINK_STUBS_CUDART=named)
    assert (found.file, found.why) == (str(named), "environment variable CUDALINK_STUBS_CUDART")


def test_override_by_folder(ask, tmp_path) -> None:
    """The environment names a folder: the newest library in it is taken."""
    for major in (12, 13):
        runtime(tmp_path / "libs" / Path(WHEELS[major]).name, major * 1000)
    assert ask(CUDALINK_STUBS_CUDART=tmp_path / "libs").version == "13.0"


def test_override_that_is_wrong(ask) -> None:
    """A wrong override is not passed over in silence: nothing else is tried, and the text says so."""
    found = ask((13,), CUDALINK_STUBS_CUDART=NOWHERE)
    assert found.file is None
    assert found.degraded == ["core", "optional"]
    assert found.looked.startswith(f"CUDALINK_STUBS_CUDART={NOWHERE} (")
    assert "No such file" in found.looked


def test_damaged_file_is_passed_over_and_told(ask, tmp_path) -> None:
    """A file that cannot be opened does not end the search; the text says what was wrong with it."""
    broken = tmp_path / "home" / "lib64" / "libcudart.so.13"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"not a library")
    runtime(tmp_path / "home" / "lib64" / "libcudart.so.12", 12000)
    found = ask(CUDA_PATH=tmp_path / "home")
    assert found.version == "12.0"
    assert f"({broken}: " in found.looked


def test_missing_and_degraded(ask) -> None:
    """What the library lacks is listed by symbol; the tiers that lack something are called degraded."""
    found = ask((13,))
    assert "cudaMalloc" in found.missing
    assert "cudaRuntimeGetVersion" not in found.missing
    assert found.degraded == ["core", "optional"]


def test_verbose_line(ask, site, run, tmp_path) -> None:
    """Under CUDALINK_STUBS_VERBOSE=1 one line on standard error says which file was taken, its version, and why."""
    runtime(tmp_path / "libcudart.so.13", 13000)
    code = ASK.format(before=[], caller=str(site / "pkg" / "caller.so"))
    found = run(code, CUDALINK_STUBS_CUDART=tmp_path / "libcudart.so.13", CUDALINK_STUBS_VERBOSE="1").stderr
    start = f"cudalink stubs: libstub_cudart.so uses {tmp_path}/libcudart.so.13 (version 13.0, environment variable "
    assert found.startswith(start)
    assert "it lacks cudaGetErrorString, " in found
    lost = run(code, CUDALINK_STUBS_CUDART=NOWHERE, CUDALINK_STUBS_VERBOSE="1").stderr
    assert lost.startswith("cudalink stubs: libstub_cudart.so found no libcudart: looked in CUDALINK_STUBS_CUDART=")
    assert found.count("\n") == lost.count("\n") == 1
    assert run(code, CUDALINK_STUBS_CUDART=NOWHERE).stderr == ""
    assert run(code, CUDALINK_STUBS_CUDART=NOWHERE, CUDALINK_STUBS_VERBOSE="0").stderr == ""


def test_paths_with_quotes(ask, tmp_path) -> None:
    """A path with quotes and backslashes comes through as it is."""
    odd = runtime(tmp_path / 'a "b" \\ c' / "real.so", 12000)
    assert ask(CUDALINK_STUBS_CUDART=odd).file == str(odd)


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
    found = json.loads(done.stdout)
    assert (found["file"], found["version"]) == ("/usr/local/cuda-13.9/lib64/libcudart.so.13", "13.9")
