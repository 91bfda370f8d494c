"""Compile the project's C: find a compiler, make one shared library or program.

The build hook (`hatch_build.py`), the tests, and commands that build libraries for other projects use it.
It imports only the standard library, because the build hook runs before anything is installed.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

_FLAGS = ("-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra")


class CompilerError(RuntimeError):
    """There is no C compiler, or it failed; the message has its output."""


@dataclass(frozen=True)
class Binary:
    """A file to link from C."""

    output: str  # file name, such as "libcuda.so.1", or a path relative to the output folder
    sources: tuple[Path, ...]  # C and assembler files
    include: tuple[Path, ...] = ()  # folders of headers
    # further flags for compiler and linker; `{output}` stands for the folder of the libraries
    flags: tuple[str, ...] = ()

    @property
    def link_flags(self) -> tuple[str, ...]:
        """Flags of the kind of file."""
        return ()


class Executable(Binary):
    """A program to build."""


class SharedLibrary(Binary):
    """A shared library to build; the loader finds it by the name of its file."""

    @property
    def link_flags(self) -> tuple[str, ...]:
        """Flags that make a shared library.

        It stays when it is closed: threads, forks and other code have the addresses of its functions for the life of
        the process.
        """
        return ("-shared", f"-Wl,-soname,{Path(self.output).name}", "-Wl,-Bsymbolic", "-Wl,-z,nodelete")


def find_compiler() -> list[str]:
    """The command of a C compiler: ``$CC``, else cc, gcc or clang, else the one in the ``ziglang`` wheel.

    Raises CompilerError if there is not one; the message lists where it was looked for.
    """
    if named := os.environ.get("CC"):
        if shutil.which(named):
            return [named]  # one path, perhaps with spaces in it
        try:
            command = shlex.split(named)
        except ValueError as error:
            raise CompilerError(f"CC={named!r}: cannot be split into words: {error}; unset CC or correct it") from error
        if not command or shutil.which(command[0]) is None:
            msg = f"CC={named!r}: there is no command {''.join(command[:1])!r} on the PATH; unset CC or install it"
            raise CompilerError(msg)
        return command
    for name in ("cc", "gcc", "clang"):
        if program := shutil.which(name):
            return [program]
    if find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    msg = "no C compiler: looked for $CC, cc, gcc, clang and the ziglang wheel; install one (pip install ziglang)"
    raise CompilerError(msg)


def build(
    library: Binary,
    folder: Path,
    compiler: Sequence[str] | None = None,
    *,
    strict: bool = True,
    flags: Sequence[str] = (),
) -> Path:
    """Build one library or program, replace an older one only when it is complete, and return its path.

    `folder`: output folder; created if it is missing.
    `compiler`: command; default that of `find_compiler`.
    `strict`: whether warnings are errors: True for our own sources, False for those generated from a user's.
    `flags`: further flags.
    Returns the library or program.
    Raises CompilerError if there is no compiler, if it fails, or on another system than Linux, for which the sources
    are written.
    """
    if sys.platform != "linux":
        msg = f"the native parts of pytest-cudalink cannot be built on {sys.platform}; they are written for Linux"
        raise CompilerError(msg)
    output = folder / library.output
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".build-") as work:
        made = Path(work) / output.name
        options = [*(flag.replace("{output}", str(output.parent)) for flag in library.flags), *flags]
        command = [*(compiler or find_compiler()), *_FLAGS, *(["-Werror"] if strict else [])]
        command += [f"-I{path}" for path in library.include]
        inputs = [str(source) for source in library.sources]
        if len(inputs) > 1:
            inputs = _objects([*command, *(flag for flag in options if _compiles(flag))], inputs, Path(work))
        _call([*command, *inputs, *library.link_flags, *options, "-o", str(made)])
        made.replace(output)
    return output


def _compiles(flag: str) -> bool:
    """Whether a flag is one of the compiler; clang warns of a library or a linker's flag that it does not use."""
    return flag.startswith("-") and not flag.startswith(("-l", "-L", "-Wl,"))


def _objects(command: list[str], sources: Sequence[str], folder: Path) -> list[str]:
    """Compile each source, as many at once as there are processors; returns the objects in the order of the sources."""
    objects = [str(folder / f"{number}.o") for number in range(len(sources))]
    commands = ([*command, "-c", source, "-o", made] for source, made in zip(sources, objects, strict=True))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_call, commands))  # after the first error no other begins
    return objects


def _call(command: list[str]) -> None:
    """Run the compiler. Raises CompilerError if it fails; the message has its output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (the user's compiler)
    if done.returncode:
        raise CompilerError(f"{shlex.join(command)}\nfailed with exit code {done.returncode}:\n{done.stderr.strip()}")
