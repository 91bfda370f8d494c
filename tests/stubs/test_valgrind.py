"""Under valgrind: no invalid read or write and no leak, with the library and without."""

import shutil
import subprocess
from pathlib import Path

import pytest

from .conftest import NOWHERE, clean_environment, compile_c, linked
from .test_first_call import SLOW_LIBRARY, many_threads
from .test_missing import ERRORS, call_everything, check

pytestmark = [
    pytest.mark.apart,
    pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs valgrind: 'nox -s stubs-valgrind'"),
]


def valgrind(program: Path, *options: str, **variables: str) -> str:
    """Run a program under valgrind; its output, after it found no error."""
    command = ["valgrind", "-q", "--error-exitcode=99", *options, str(program)]
    env = clean_environment(**variables)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=600)
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


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("present", [True, False])
def test_every_function(name: str, present: bool, stubs, catalog, tmp_path) -> None:
    """Every fallback writes inside the outputs, which have exactly the size that the catalog's types have."""
    library, text = catalog.libraries[name], call_everything(catalog.libraries[name], dict(catalog.types))
    program = compile_c(tmp_path / "all", text, "-DGUARD=0", *linked(stubs[name]))
    empty = compile_c(tmp_path / "empty.so", "int nothing;")
    variables = {f"CUDALINK_STUBS_{name.upper()}": str(empty) if present else NOWHERE}
    words = f"{empty} lacks " if present else f"no lib{name} was found"
    said = check(valgrind(program, *MEMCHECK, **variables), library, ERRORS[name][present], words)
    assert said["degraded"] == ["core", "optional"]
