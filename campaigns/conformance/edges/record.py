"""Record programs from the libcuda of this machine: ``python -m campaigns.conformance.edges.record OUT [NAME...]``."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from pytest_cudalink.emulator import preload

from .compare import PROGRAMS, build, run


def _record(folder: Path, name: str) -> None:
    """Write the answers of one program."""
    (folder / f"{name}.txt").write_text(run(build(name, folder), dict(os.environ)), encoding="utf-8")
    (folder / name).unlink()


def main() -> int:
    """Run the named programs, or all; exit code 2 where there is nothing to record."""
    if not preload.driver_exists():
        sys.stderr.write("campaigns.conformance.edges.record: there is no CUDA driver (libcuda.so.1) here to record\n")
        return 2
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    names = sys.argv[2:] or [*PROGRAMS]
    with ThreadPoolExecutor(os.cpu_count()) as several:
        list(several.map(partial(_record, folder), names))
    print(f"{len(names)} programs in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
