"""With nothing installed: every function answers with its error, and nothing is left unwritten."""

import json

import pytest

from pytest_cudalink.stubs.catalog import CatalogLibrary

from .conftest import NOWHERE, compile_c, linked, loaded, run_hidden

#: What CUDA answers where a library, and where a symbol cannot be found.
ERRORS = {"cuda": (303, 302), "cudart": (303, 302), "nvrtc": (11, 11)}
#: Memory whose end is guarded, or for valgrind has none behind it.
HEAD = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifndef GUARD
#define GUARD 64
#endif
static void *made(size_t size) { return memset(malloc(size + GUARD), 0xAA, size + GUARD); }
static void left(const char *name, unsigned char *memory, size_t size)
{
  size_t zeros = 0, whole = size;
  while (zeros < size && !memory[zeros]) zeros++;
  while (whole < size + GUARD && memory[whole] == 0xAA) whole++;
  const char *inside = !size ? "as it was" : zeros < size ? "unwritten" : "zeroed";
  printf("\\t%s:%s", name, whole < size + GUARD ? "overrun" : inside);
  free(memory);
}
"""


def call_everything(library: CatalogLibrary, types: dict[str, str]) -> str:
    """C that calls every function with memory of the right size: prints a line for each, and what describe() says.

    A line has the symbol, its result or the text that it gives, and what became of the memory of each pointer.
    """
    signatures = [text for f in library.functions for text in (f.result, *(p.type for p in f.parameters))]
    used = {word for text in signatures for word in text.replace("*", " ").split()}
    lines = [HEAD, *(f"typedef {meaning} {name};" for name, meaning in types.items() if name in used)]
    body = []
    for function in library.functions:
        parameters = ", ".join(f"{p.type} {p.name}" for p in function.parameters) or "void"
        lines.append(f"extern {function.result} {function.symbol}({parameters});")
        outputs, arguments, sizes = {output.name: output for output in function.outputs}, [], {}
        for parameter in function.parameters:
            if parameter.is_pointer:
                output, element = outputs.get(parameter.name), f"sizeof(*({parameter.type})0)"
                sizes[parameter.name] = f"{8 if output.length else 1} * {output.size or element}" if output else "0"
                arguments.append(f"at_{parameter.name}")
            else:
                meaning = types.get(parameter.type, "")
                value = f"({parameter.type}){{0}}" if "{" in meaning else "8"
                arguments.append("NULL" if meaning.endswith("*") else value)
        before = "".join(f"void *at_{name} = made({size}); " for name, size in sizes.items())
        after = "".join(f'left("{name}", at_{name}, {size}); ' for name, size in sizes.items())
        call, shown = f"{function.symbol}({', '.join(arguments)})", "%d"
        if function.answer:
            shown = "%s"
            call = call if function.result.endswith("*") else f"({call}, *(char **)at_{function.outputs[0].name})"
        body.append(f'  {{ {before}printf("{function.symbol}\\t{shown}", {call}); {after}puts(""); }}')
    describe = f"stub_{library.name}_describe"
    return "\n".join(
        [*lines, f"extern const char *{describe}(void);", "int main(void) {", *body, f"puts({describe}()); }}"]
    )


def check(printed: str, library: CatalogLibrary, error: int, words: str) -> dict[str, object]:
    """Every function was called, failed as the catalog says and zeroed what it says, no more; what describe() says."""
    *lines, description = printed.splitlines()
    rows = {symbol: more for symbol, *more in (line.split("\t") for line in lines)}
    assert set(rows) == {function.symbol for function in library.functions}
    for function in library.functions:
        result, *left = rows[function.symbol]
        outputs, states = {output.name for output in function.outputs}, dict(text.split(":") for text in left)
        if function.answer:
            assert words in result if function.answer == "text" else result == "unrecognized error code"
            assert "overrun" not in states.values()
        else:
            assert result == str(function.error or error), function.symbol
            assert states == {name: "zeroed" if name in outputs else "as it was" for name in states}, function.symbol
            assert outputs <= set(states)
    return json.loads(description)


@pytest.mark.parametrize(("name", "errors"), ERRORS.items())
@pytest.mark.parametrize("lacks", ["library", "symbols"])
def test_what_is_missing(name: str, errors: tuple[int, int], lacks: str, stubs, catalog, run, tmp_path) -> None:
    """No library: 303, or no function in it: 302, NVRTC 11; the error text names library, place and variable."""
    library, variable = catalog.libraries[name], f"CUDALINK_STUBS_{name.upper()}"
    program = compile_c(tmp_path / "all", call_everything(library, dict(catalog.types)), *linked(stubs[name]))
    empty = compile_c(tmp_path / "empty.so", "int nothing;")
    missing = f"no lib{name} was found; looked in {variable}={NOWHERE}"
    place, error, words = (NOWHERE, errors[0], missing) if lacks == "library" else (empty, errors[1], f"{empty} lacks ")
    done = run(program, **{variable: place})
    assert (done.returncode, done.stderr) == (0, "")
    check(done.stdout, library, error, words)


def test_null_outputs(stubs, run) -> None:
    """A null pointer for an output is left alone."""
    calls = "cudaGetDeviceCount(None)", "cudaMalloc(None, ctypes.c_size_t(1))", "cudaGetDeviceProperties(None, 0)"
    code = loaded(stubs["cudart"]) + f"print({', '.join(f'stub.{call}' for call in calls)})"
    assert run(code, CUDALINK_STUBS_CUDART=NOWHERE).stdout == "303 303 303\n"


def test_error_names(stubs, run) -> None:
    """The error strings know success and the two errors of the stub, and answer for every other code."""
    code = loaded(stubs["cudart"], "cudaGetErrorName", "cudaGetErrorString")
    code += """
print(*[stub.cudaGetErrorName(code).decode() for code in (0, 302, 303, 700)], stub.cudaGetErrorString(0).decode())
"""
    assert run(code, CUDALINK_STUBS_CUDART=NOWHERE).stdout == (
        "cudaSuccess cudaErrorSharedObjectSymbolNotFound cudaErrorSharedObjectInitFailed unrecognized error code "
        "cudaSuccess\n"
    )


def test_one_missing_function_stands_alone(stubs, run, tmp_path) -> None:
    """A library with one function serves that one; the others fail alone, with 302."""
    real = compile_c(tmp_path / "part.so", "int cudaGetDeviceCount(int *n) { *n = 5; return 0; }")
    code = loaded(stubs["cudart"])
    code += """
n = ctypes.c_int(-1)
for name in ("cudaGetDeviceCount", "cudaGetDevice", "cudaGetDeviceCount"):
    print(getattr(stub, name)(ctypes.byref(n)), n.value)
"""
    assert run(code, CUDALINK_STUBS_CUDART=real).stdout == "0 5\n302 0\n0 5\n"


@pytest.mark.parametrize("name", ERRORS)
def test_nothing_installed(name: str, stubs, catalog, tmp_path) -> None:
    """Every place of the search is really empty: a program sees its error from each function, and no crash.

    Toolkits and libraries of this machine are hidden from the program by a mount namespace of its own.
    """
    library = catalog.libraries[name]
    program = compile_c(tmp_path / "all", call_everything(library, dict(catalog.types)), *linked(stubs[name]))
    done = run_hidden(library, f"exec {program}")
    assert (done.returncode, done.stderr) == (0, "")
    answer = check(done.stdout, library, ERRORS[name][0], f"no lib{name} was found; looked in the process; ")
    assert (answer["file"], answer["why"], answer["degraded"]) == (None, "not found", ["core", "optional"])
    assert answer["looked"].startswith("the process; ")
    assert answer["looked"].endswith("/usr/lib/wsl/lib" if name == "cuda" else "/usr/local/cuda*")
