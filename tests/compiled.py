"""What tests compile: C, the same text once in a run, by whichever worker asks first, and the sample of two units."""

import fcntl
import hashlib
import re
import shutil
import subprocess
from pathlib import Path

from pytest_cudalink.base.compiler import find_compiler
from pytest_cudalink.linker import ObjectCode, sample

_kept: Path | None = None


def keep_in(folder: Path) -> None:
    """Say where the workers of this run keep what was compiled."""
    global _kept  # noqa: PLW0603 (helpers without fixtures compile, too)
    _kept = folder


def compile_c(output: Path, source: str, *flags: str) -> Path:
    """Compile one C text; a shared library if the name ends in .so or has a version.

    What is linked is known by its name and bytes, wherever it lies: give its path, and ``$ORIGIN`` to find it by.
    """
    # as GNU's linker does, and zig's does not, keep what nothing uses
    shared = ["-shared", "-fPIC", f"-Wl,-soname,{output.name}", "-Wl,--no-gc-sections"] if ".so" in output.name else []
    head = [*find_compiler(), "-std=gnu17", "-O1", "-g", *shared, "-x", "c", "-", "-x", "none"]
    known = hashlib.sha256("\0".join([*head, source]).encode())
    for flag in flags:
        file = Path(re.split("[=,]", flag)[-1])
        known.update(f"\0{file.name if str(file) == flag and file.is_file() else flag}\0".encode())
        known.update(file.read_bytes() if file.is_file() else b"")
    assert _kept is not None
    made = _kept / known.hexdigest()
    with made.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            command = [*head, *flags, "-pthread", "-ldl", "-o", str(made)]
            done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
            # with one number of arguments zig 0.17 cannot start its linker ("UnableToSpawnSelf"), or gives it a folder
            if done.returncode and "ziglang" in head:
                done = subprocess.run([*command, "-L/"], input=source, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
    output.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(made, output)
    return output


def compiled_sample(arch: str) -> dict[tuple[str, str], ObjectCode]:
    """The two units of the sample by unit and kind."""
    return {
        (unit, kind): code
        for kind in ("ptx", "ltoir", "cubin")
        for unit, code in zip(("main", "user"), sample.compile_modules(kind, arch), strict=True)
    }
