"""Imports a module, and writes which code opens libraries through ctypes: ``-c TEXT-OF-THIS-FILE MODULE FILE``.

It needs nothing but the standard library: the Python of a bare cell runs its text without the package around it.
"""

import os
import sys


def _follow(file: str) -> None:
    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event != "ctypes.dlopen" or not arguments[0]:
            return
        frame, through = sys._getframe(1), ""  # noqa: SLF001 (inspect.stack reads the files of all frames)
        while frame.f_back is not None and _is_for_others(frame.f_code.co_filename):
            through = "cuda.pathfinder" if "/pathfinder/" in frame.f_code.co_filename else through
            frame = frame.f_back
        line = ascii((os.fsdecode(arguments[0]), f"{frame.f_code.co_filename}:{frame.f_lineno}", through))  # type: ignore[arg-type]
        try:  # (an error would stop what the hook only looks at)
            with open(file, "a", encoding="ascii") as stream:  # noqa: PTH123 (nothing is imported that others forgot)
                stream.write(f"{line}\n")
        except OSError:
            pass

    sys.addaudithook(hook)


def _is_for_others(file: str) -> bool:
    return file.startswith("<frozen ") or any(part in file for part in ("/ctypes/", "/cuda/pathfinder/"))


if __name__ == "__main__":
    _module, _file = sys.argv[1:]
    del sys.argv[1:]
    _follow(_file)
    __import__(_module)
