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
    lines = ["#include <stdint.h>", "#include <stdio.h>", "#include <stdlib.h>"]
    used = {
        word
        for f in library.functions
        for t in (f.result, *(p.type for p in f.parameters))
        for word in t.replace("*", " ").split()
    }
    lines += [f"typedef {meaning} {name};" for name, meaning in types.items() if name in used]
    body = []
    for function in library.functions:
        parameters = ", ".join(f"{p.type} {p.name}" for p in function.parameters) or "void"
        lines.append(f"extern {function.result} {function.symbol}({parameters});")
        arguments = []
        sizes = {output.name: output.size or f"sizeof(*({p.type})0)" for output in function.outputs for p in
                 function.parameters if p.name == output.name}  # fmt: skip
        for parameter in function.parameters:
            if parameter.name in sizes:
                count = 8 if any(o.length for o in function.outputs if o.name == parameter.name) else 1
                arguments.append(f"({parameter.type})malloc({count} * {sizes[parameter.name]})")
            elif parameter.is_pointer or types.get(parameter.type, "").endswith("*"):
                arguments.append("NULL")
            elif "{" in types.get(parameter.type, ""):
                arguments.append(f"({parameter.type}){{0}}")
            else:
                arguments.append("8")
        keep = [f"void *a{i} = (void *){a};" for i, a in enumerate(arguments) if "malloc" in a]
        call = ", ".join(f"a{i}" if "malloc" in a else a for i, a in enumerate(arguments))
        frees = " ".join(f"free(a{i});" for i, a in enumerate(arguments) if "malloc" in a)
        body.append(f"  {{ {' '.join(keep)} count += ((intptr_t){function.symbol}({call}) != 0); {frees} }}")
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
