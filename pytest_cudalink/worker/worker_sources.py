"""The sources of the link worker and of its client; the build hook loads this file. Standard library only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_NATIVE = Path(__file__).parent / "native"
#: Has `library_file.h`, the check of a library before it is loaded.
_CHECK = Path(__file__).parent.parent / "stubs" / "native"
#: C that several parts are compiled with.
_SHARED = Path(__file__).parent.parent / "native"
PROGRAM = "cudalink-link-worker"
CLIENT_LIBRARY = "libcudalink-worker.so"


def libraries(cc: Any) -> list[Any]:
    """Return the program and the library; `cc` is the module `native.compiler`."""
    # what a process that links through a worker is linked with; `worker.c` is the other side
    client = tuple(file for file in sorted(_NATIVE.glob("*.c")) if file.name != "worker.c")
    threads = ("-pthread", "-ldl")
    return [
        cc.Executable(PROGRAM, (_NATIVE / "worker.c", _NATIVE / "channel.c"), (_CHECK,), threads),
        cc.SharedLibrary(
            CLIENT_LIBRARY,
            (*client, _SHARED / "locks.c"),
            CLIENT_LIBRARY,
            (_SHARED,),
            ("-DCUDALINK_WORKER_LIBRARY", *threads),
        ),
    ]
