"""With nothing installed: every function answers with its error, and nothing is left unwritten."""

import json
import sys
from pathlib import Path

import pytest

from .conftest import NOWHERE, clean_environment, compile_c, linked, run_hidden, succeed
from .test_valgrind import call_everything

LIBRARIES = ("cuda", "cudart", "nvrtc")
CALL_ALL = Path(__file__).with_name("call_all.py")


def call_all(stub: Path, name: str, real: Path | str) -> dict[str, dict]:
    """What every function of a stub does, in a child process."""
    environment = clean_environment(**{f"CUDALINK_STUBS_{name.upper()}": str(real)})
    done = succeed(sys.executable, CALL_ALL, stub, name, env=environment)
    assert done.stderr == ""
    return json.loads(done.stdout)


def check(results: dict[str, dict], catalog, name: str, error: int, words: str) -> None:
    """Every function of the catalog was called, failed as it says and zeroed what it says, no more."""
    functions = catalog.libraries[name].functions
    assert set(results) == {function.symbol for function in functions}
    for function in functions:
        got = results[function.symbol]
        assert got["touched"] == [], function.symbol
        if function.answer:
            answer = got["answer"] or got["result"]
            assert words in answer if function.answer == "text" else answer == "unrecognized error code"
        else:
            assert got["result"] == (function.error or error), function.symbol
            assert got["zeroed"] == sorted(output.name for output in function.outputs), function.symbol


@pytest.mark.parametrize(("name", "errors"), [("cuda", (303, 302)), ("cudart", (303, 302)), ("nvrtc", (11, 11))])
@pytest.mark.parametrize("lacks", ["library", "symbols"])
def test_what_is_missing(name: str, errors: tuple[int, int], lacks: str, stubs, catalog, tmp_path) -> None:
    """No library: 303, or no function in it: 302, NVRTC 11; the error text names library, place and variable."""
    if lacks == "library":
        place, error = NOWHERE, errors[0]
        words = f"no lib{name} was found; looked in CUDALINK_STUBS_{name.upper()}={NOWHERE}"
    else:
        place, error = compile_c(tmp_path / "empty.so", "int nothing;"), errors[1]
        words = f"{place} lacks "
    check(call_all(stubs[name], name, place), catalog, name, error, words)


def test_null_outputs(stubs, run) -> None:
    """A null pointer for an output is left alone."""
    code = f"""
import ctypes
stub = ctypes.CDLL({str(stubs["cudart"])!r})
print(stub.cudaGetDeviceCount(None), stub.cudaMalloc(None, ctypes.c_size_t(1)), stub.cudaGetDeviceProperties(None, 0))
"""
    assert run(code, CUDALINK_STUBS_CUDART=NOWHERE).stdout == "303 303 303\n"


def test_error_names(stubs, run) -> None:
    """The error strings know success and the two errors of the stub, and answer for every other code."""
    code = f"""
import ctypes
stub = ctypes.CDLL({str(stubs["cudart"])!r})
stub.cudaGetErrorName.restype = stub.cudaGetErrorString.restype = ctypes.c_char_p
print(*[stub.cudaGetErrorName(code).decode() for code in (0, 302, 303, 700)], stub.cudaGetErrorString(0).decode())
"""
    assert run(code, CUDALINK_STUBS_CUDART=NOWHERE).stdout == (
        "cudaSuccess cudaErrorSharedObjectSymbolNotFound cudaErrorSharedObjectInitFailed unrecognized error code "
        "cudaSuccess\n"
    )


def test_one_missing_function_stands_alone(stubs, run, tmp_path) -> None:
    """A library with one function serves that one; the others fail alone, with 302."""
    real = compile_c(tmp_path / "part.so", "int cudaGetDeviceCount(int *n) { *n = 5; return 0; }")
    code = f"""
import ctypes
stub = ctypes.CDLL({str(stubs["cudart"])!r})
n = ctypes.c_int(-1)
for name in ("cudaGetDeviceCount", "cudaGetDevice", "cudaGetDeviceCount"):
    print(getattr(stub, name)(ctypes.byref(n)), n.value)
"""
    assert run(code, CUDALINK_STUBS_CUDART=real).stdout == "0 5\n302 0\n0 5\n"


@pytest.mark.parametrize("name", LIBRARIES)
def test_nothing_installed(name: str, stubs, catalog, tmp_path) -> None:
    """Every place of the search is really empty: a program sees its error from each function, and no crash.

    Toolkits and libraries of this machine are hidden from the program by a mount namespace of its own.
    """
    library = catalog.libraries[name]
    program = compile_c(tmp_path / "all", call_everything(library, dict(catalog.types)), *linked(stubs[name]))
    done = run_hidden(library, f"exec {program}")
    assert (done.returncode, done.stderr) == (0, "")
    count, _, description = done.stdout.partition(" ")
    answer = json.loads(description)
    assert (answer["file"], answer["why"], answer["degraded"]) == (None, "not found", ["core", "optional"])
    assert answer["looked"].startswith("the process; ")
    assert answer["looked"].endswith("/usr/lib/wsl/lib" if name == "cuda" else "/usr/local/cuda*")
    assert int(count) >= len(library.functions) - sum(bool(function.answer) for function in library.functions)
