"""Start pytest as the process that waits was started: ``python bootstrap.py TASK``, which imports pytest alone.

The tests must not see that the process is another one. So it takes over the search path of modules, the command line
and the description of ``__main__``, by which `multiprocessing` finds the main module, and leaves no names in that.
"""

import faulthandler
import importlib.util
import json
import os
import sys
import types
from pathlib import Path


def become(file: str) -> None:
    """Run pytest in this process, and end it with pytest's exit code.

    `file`: the `Task`, as JSON.
    """
    start = json.loads(Path(file).read_text(encoding="utf-8"))["start"]
    os.environ["CUDALINK_ISOLATED"] = file  # here, so that the system never shows it
    faulthandler.enable()  # until pytest enables it, and after that
    sys.path[:], sys.argv[:], sys.orig_argv[:] = start["path"], start["argv"], start["orig_argv"]
    main = types.ModuleType("__main__")
    if start["main_name"]:
        spec = importlib.util.spec_from_file_location(start["main_name"], start["main_file"])
        if spec is not None:
            main = importlib.util.module_from_spec(spec)
            main.__name__ = "__main__"
    elif start["main_file"]:
        main.__file__ = start["main_file"]
    sys.modules["__main__"] = main
    import pytest

    sys.exit(pytest.main(start["arguments"]))


if __name__ == "__main__":
    become(sys.argv[1])
