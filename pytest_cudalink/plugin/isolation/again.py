"""Start pytest as the process that waits was started: a program, ``python again.py TASK``, that imports pytest alone.

The tests must not see that the process is another one. So it takes over the search path of modules, the command line
and the description of ``__main__``, by which `multiprocessing` finds the main module, and leaves no names in that.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import json
import sys
import types
from pathlib import Path


def become(file: str) -> None:
    """Run pytest in this process, and end it with pytest's exit code.

    `file`: the `Task`, as JSON.
    """
    start = json.loads(Path(file).read_text(encoding="utf-8"))["start"]
    faulthandler.enable()  # until pytest enables it, and after that
    sys.path[:], sys.argv[:], sys.orig_argv[:] = start["path"], start["argv"], start["orig_argv"]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    import pytest

    if start["main_name"]:
        main.__spec__ = importlib.util.find_spec(start["main_name"])
    if start["main_file"]:
        main.__file__ = start["main_file"]
    sys.exit(pytest.main(start["arguments"]))


if __name__ == "__main__":
    become(sys.argv[1])
