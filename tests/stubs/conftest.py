"""Fixtures of the stubs' tests: stubs built from this tree, small C libraries, child processes."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudalink.stubs import c_source
from pytest_cudalink.stubs.catalog import Catalog, CatalogLibrary, load_catalog
from tests.compiled import compile_c

__all__ = ["NOWHERE", "clean_environment", "compile_c", "linked", "loaded", "run", "run_hidden", "stubs", "succeed"]

#: Stands for a file that is not there: what the child processes have instead of an installed library.
NOWHERE = "/nonexistent/cudalink/lib.so"

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    """The catalog as it is shipped."""
    return load_catalog()


@pytest.fixture(scope="session")
def stubs(once) -> dict[str, Path]:
    """The three stubs, built from this tree."""
    names = ("cuda", "cudart", "nvrtc")
    folder = once("stubs", lambda folder: c_source.build_stubs(names, folder))
    return {name: folder / f"libstub_{name}.so" for name in names}


def clean_environment(**more: str) -> dict[str, str]:
    """The environment without anything that tells where CUDA is."""
    known = {"CUDA_PATH", "CUDA_HOME", "LD_LIBRARY_PATH", "LD_PRELOAD"}
    kept = {k: value for k, value in os.environ.items() if k not in known and not k.startswith("CUDALINK_STUBS_")}
    return {**kept, **{key: str(value) for key, value in more.items()}}


def succeed(*command: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    """Run a command that must succeed."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def linked(stub: Path) -> list[str]:
    """Flags that link a program with a stub, found where it is."""
    return [str(stub), f"-Wl,-rpath,{stub.parent}"]


def loaded(stub: Path, *texts: str) -> str:
    """Python that loads a library as ``stub``, of whose functions some give texts."""
    lines = ["import ctypes", f"stub = ctypes.CDLL({str(stub)!r})"]
    return "\n".join([*lines, *(f"stub.{name}.restype = ctypes.c_char_p" for name in texts), ""])


def on_the_loaders_path(names: tuple[str, ...]) -> list[str]:
    """Files that the loader would find by these names, such as the driver of a machine with a GPU."""
    program = shutil.which("ldconfig", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    listed = subprocess.run([program, "-p"], capture_output=True, text=True, check=True).stdout if program else ""
    entries = [line.strip().partition(" => ") for line in listed.splitlines()]
    return sorted({path for entry, _, path in entries if entry.partition(" ")[0] in names})


def run_hidden(library: CatalogLibrary, script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script from which this machine's copies of a library are hidden; its /usr/local is empty.

    Skips the test where a mount namespace of one's own cannot be made.
    """
    hide = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else []), "sh", "-c"]
    mounts = [f"mount --bind /dev/null {shlex.quote(path)}" for path in on_the_loaders_path(library.names)]
    mounts += [f"mount -t tmpfs none {folder}" for folder in ("/usr/local", *library.folders) if Path(folder).is_dir()]
    mount = " && ".join(mounts)
    if shutil.which("unshare") is None or subprocess.run([*hide, mount], capture_output=True, check=False).returncode:
        pytest.skip("needs the right to make a mount namespace")
    command = [*hide, f"{mount} && {script}"]
    return subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=False)


@pytest.fixture
def run() -> Run:
    """Run a program, or Python code, in a child process with a clean environment: ``run("code", NAME="value")``."""

    def start(*command: str | Path, **variables: str | Path) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-c", *command] if "\n" in str(command[0]) or " " in str(command[0]) else command
        command, env = [*map(str, words)], clean_environment(**variables)
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)

    return start
