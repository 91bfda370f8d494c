"""Record the cases from the libcuda of this machine: ``python -m campaigns.conformance.record OUT.json [PREFIX]``."""

import ctypes
import datetime as dt
import json
import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

from pytest_cudalink import probes
from pytest_cudalink.emulator import preload
from pytest_cudalink.guardrails.driver import driver_release

from .cases import CASES
from .recorder import run_case


def rows_of(name: str) -> list[dict[str, Any]]:
    """Rows of one case; the library is opened by each worker, and initialized only by the case's own process."""
    return run_case(ctypes.CDLL("libcuda.so.1"), CASES[name])


def main() -> int:
    """Run every case and write one file; exit code 2 where there is nothing to record."""
    if not preload.driver_exists():
        sys.stderr.write("campaigns.conformance.record: there is no CUDA driver (libcuda.so.1) here to record\n")
        return 2
    # compiled PTX would come back from disk without its warnings
    os.environ["CUDA_CACHE_DISABLE"] = "1"
    names = [name for name in CASES if name.startswith(tuple(sys.argv[2:]) or "")]
    with multiprocessing.get_context("fork").Pool() as pool:
        rows = dict(zip(names, pool.map(rows_of, names, chunksize=1), strict=True))
    recording = {
        "driver": driver_release(),
        "cuda": str(probes.driver_version()),
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "arch": probes.device_arch(),
        "cases": rows,
    }
    Path(sys.argv[1]).write_text(json.dumps(recording, indent=1) + "\n", encoding="utf-8")
    print(f"{len(rows)} cases, driver {recording['driver']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
