"""Under valgrind: no invalid read or write and no leak, with the library and without."""

import shutil
import subprocess
from pathlib import Path

import pytest

from .conftest import NOWHERE, clean_environment, compile_c, linked
from .test_first_call import SLOW_LIBRARY, many_threads

pytestmark = [
    pytest.mark.apart,
    pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs valgrind: 'nox -s stubs-valgrind'"),
]


def valgrind(program: Path, *options: str, **variables: str) -> str:
    """Run a program under valgrind; its output, after it found no error."""
    command = ["valgrind", "-q", "--error-exitcode=99", *options, str(program)]
    done = subprocess.run(
        command, env=clean_environment(**variables), capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


MEMCHECK = ("--leak-check=full", "--errors-for-leak-kinds=definite,possible", "--track-origins=yes")


@pytest.mark.parametrize("present", [True, False])
def test_many_threads(present: bool, stubs, tmp_path) -> None:
    """Two hundred threads in the first call: memory stays clean."""
    program = many_threads(tmp_path / "threads", stubs["cudart"], present=present)
    real = compile_c(tmp_path / "slow.so", SLOW_LIBRARY)
    output = valgrind(program, *MEMCHECK, CUDALINK_STUBS_CUDART=str(real) if present else NOWHERE)
    assert output.startswith("200 good")


def call_everything(library, types: dict[str, str]) -> str:
    """C that calls every function of a library with memory of exactly the right size, and describe()."""
    signatures = [text for f in library.functions for text in (f.result, *(p.type for p in f.parameters))]
    used = {word for text in signatures for word in text.replace("*", " ").split()}
    lines = ["#include <stdint.h>", "#include <stdio.h>", "#include <stdlib.h>"]
    lines += [f"typedef {meaning} {name};" for name, meaning in types.items() if name in used]
    body = []
    for function in library.functions:
        parameters = ", ".join(f"{p.type} {p.name}" for p in function.parameters) or "void"
        lines.append(f"extern {function.result} {function.symbol}({parameters});")
        outputs, arguments, made = {output.name: output for output in function.outputs}, [], []
        for parameter in function.parameters:
            meaning = types.get(parameter.type, "")
            if output := outputs.get(parameter.name):
                size, name = output.size or f"sizeof(*({parameter.type})0)", f"a{len(arguments)}"
                made.append((name, f"({parameter.type})malloc({8 if output.length else 1} * {size})"))
                arguments.append(name)
            elif parameter.is_pointer or meaning.endswith("*"):
                arguments.append("NULL")
            else:
                arguments.append(f"({parameter.type}){{0}}" if "{" in meaning else "8")
        keep = " ".join(f"void *{name} = (void *){value};" for name, value in made)
        frees = " ".join(f"free({name});" for name, _ in made)
        call = f"count += ((intptr_t){function.symbol}({', '.join(arguments)}) != 0);"
        body.append(f"  {{ {keep} {call} {frees} }}")
    describe = f"stub_{library.name}_describe"
    lines += [f"extern const char *{describe}(void);", "int main(void) {", "  int count = 0;", *body]
    lines += [f'  printf("%d %s\\n", count, {describe}());', "  return 0;", "}"]
    return "\n".join(lines)


@pytest.mark.parametrize("name", ["cuda", "cudart", "nvrtc"])
@pytest.mark.parametrize("present", [True, False])
def test_every_function(name: str, present: bool, stubs, catalog, tmp_path) -> None:
    """Every fallback writes inside the outputs, which have exactly the size that the catalog's types have."""
    library = catalog.libraries[name]
    program = compile_c(tmp_path / "all", call_everything(library, dict(catalog.types)), *linked(stubs[name]))
    empty = compile_c(tmp_path / "empty.so", "int nothing;")
    variables = {f"CUDALINK_STUBS_{name.upper()}": str(empty) if present else NOWHERE}
    count, _, description = valgrind(program, *MEMCHECK, **variables).partition(" ")
    assert int(count) >= len(library.functions) - sum(bool(f.answer) for f in library.functions)
    assert '"degraded": ["core", "optional"]' in description
