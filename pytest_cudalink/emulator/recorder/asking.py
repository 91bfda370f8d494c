"""A process that asks a driver: ``python -m pytest_cudalink.emulator.recorder.asking QUESTIONS ANSWERS``.

It is a separate program, because a driver that was opened stays, and a stand-in may end the process that opens it. It
opens a library only for the description: each question runs in a fork, which may die or hang.
"""

import contextlib
import ctypes
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from ...base import scratch
from .execute import Interpreter, execute

#: Seconds of one question.
_QUESTION: Final = 20
#: Attributes that tell one machine from another: where the device is on the PCI bus, and next to which memory.
PRIVATE: Final = frozenset((33, 34, 50, 131, 134, 139, 140))
_ATTRIBUTES: Final = 160
_DEVICES: Final = 16


class OpenedLibraries:
    """The functions of both libraries, as one; what neither has is an AttributeError.

    A library is opened by its first use, in the fork that asks: threads that it starts would not be there after a fork.
    """

    def __init__(self, cuda: str, nvml: str) -> None:
        self._names = {"cuda": cuda, "nvml": nvml}
        self._opened: dict[str, ctypes.CDLL] = {}

    def __getattr__(self, name: str) -> Any:
        library = "nvml" if name.startswith("nvml") else "cuda"
        path = self._names[library]
        if not path:
            raise AttributeError(name)
        if library not in self._opened:
            try:
                self._opened[library] = ctypes.CDLL(path)
            except OSError as error:
                if library == "nvml" and self._names["cuda"]:  # a driver without NVML
                    raise AttributeError(name) from error
                raise
        return getattr(self._opened[library], name)

    def elsewhere(self, calls: list[Any]) -> list[Any]:
        """Return the answers to calls of another process, which inherits the file descriptors that may be inherited."""
        with tempfile.TemporaryDirectory(dir=scratch.root()) as folder:
            source, target = Path(folder, "in"), Path(folder, "out")
            source.write_text(json.dumps({**self._names, "seconds": _QUESTION, "questions": [["", calls]]}))
            command = [sys.executable, "-m", __spec__.name, str(source), str(target)]
            subprocess.run(command, check=False, close_fds=False)  # noqa: S603 (ours)
            (answers,) = (json.loads(line)[1] for line in target.read_text(encoding="utf-8").splitlines())
            return list(answers)


def described(libraries: OpenedLibraries) -> dict[str, Any]:
    """Return versions and devices, without what is the machine's alone."""
    description: dict[str, Any] = {"driver": "", "cuda": "", "init": 0, "devices": []}
    text, number = ctypes.create_string_buffer(96), ctypes.c_int()
    with contextlib.suppress(AttributeError):
        if not libraries.nvmlInit_v2() and not libraries.nvmlSystemGetDriverVersion(text, len(text)):
            description["driver"] = text.value.decode("utf-8", "replace")
    with contextlib.suppress(AttributeError):
        if not libraries.cuDriverGetVersion(ctypes.byref(number)):
            description["cuda"] = f"{number.value // 1000}.{number.value % 1000 // 10}"
        description["init"] = libraries.cuInit(0)
        number.value = 0
        libraries.cuDeviceGetCount(ctypes.byref(number))
        description["devices"] = [_device(libraries, device) for device in range(min(number.value, _DEVICES))]
    return description


def _device(libraries: OpenedLibraries, device: int) -> dict[str, Any]:
    text, memory, value = ctypes.create_string_buffer(96), ctypes.c_size_t(), ctypes.c_int()
    libraries.cuDeviceGetName(text, len(text), device)
    libraries.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    attributes = {
        str(number): value.value
        for number in range(1, _ATTRIBUTES)
        if number not in PRIVATE and not libraries.cuDeviceGetAttribute(ctypes.byref(value), number, device)
    }
    return {
        "name": text.value.decode("utf-8", "replace"),
        "arch": f"sm_{attributes.get('75', 0)}{attributes.get('76', 0)}",
        "memory": memory.value,
        "attributes": attributes,
    }


def main() -> int:
    """Write an answer a line, at once; a file without questions asks for the description."""
    given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    deadline = time.monotonic() + given["seconds"]
    with Path(sys.argv[2]).open("w", encoding="utf-8") as file:

        def write(*parts: object) -> None:
            file.write(json.dumps(parts, separators=(",", ":")) + "\n")
            file.flush()

        asked: Any = OpenedLibraries(given["cuda"], given["nvml"])
        if not given["questions"]:
            try:
                write("described", described(asked))
            except OSError as error:
                write("error", str(error))
        for name, calls, *aliases in given["questions"]:
            if time.monotonic() > deadline:
                break
            write(name, execute(calls, Interpreter(asked, aliases=bool(aliases and aliases[0])), _QUESTION))
    return 0


if __name__ == "__main__":
    sys.exit(main())
