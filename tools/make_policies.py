"""Write ``data/manylinux.toml``: the libraries of the system that wheels may need, by the newest auditwheel.

``python -m tools.make_policies``; with ``--check``, as each week, it writes nothing and ends with 1 on a difference.
"""

from __future__ import annotations

import io
import json
import sys
import zipfile
from pathlib import Path

from .package_index import RangeFile, default_index, files_of

_TARGET = Path(__file__).parent.parent / "pytest_cudalink" / "data" / "manylinux.toml"


def written() -> str:
    """The text of the data file: the stems of all policies."""
    wheels = files_of(default_index(), "auditwheel")
    newest = [wheel for wheel in wheels if not (wheel.yanked or wheel.version.is_prerelease)][-1]
    with RangeFile(newest) as raw, zipfile.ZipFile(io.BufferedReader(raw)) as archive:
        files = [f"auditwheel/policy/{name}-policy.json" for name in ("manylinux", "musllinux")]
        policies = [policy for file in files for policy in json.loads(archive.read(file))]
    stems = {library.partition(".so")[0] for policy in policies for library in policy["lib_whitelist"]}
    lines = "".join(f"  {json.dumps(stem)},\n" for stem in sorted(stems))
    return (
        "# The libraries that the policies of manylinux and musllinux (PEP 600, PEP 656) let a wheel need, by stem.\n"
        "# pytest_cudalink/compat/libraries.py reads it.\n"
        "# Made by `python -m tools.make_policies` from the newest auditwheel; do not edit.\n"
        f"\nlibraries = [\n{lines}]\n"
    )


def main() -> int:
    """Write the file, or compare it; returns the exit code."""
    if "--check" not in sys.argv[1:]:
        _TARGET.write_text(written(), encoding="utf-8")
    elif _TARGET.read_text(encoding="utf-8") != written():
        sys.stderr.write(f"{_TARGET} differs from auditwheel's policies: run 'python -m tools.make_policies'\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
