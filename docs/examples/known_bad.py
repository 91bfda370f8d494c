"""Print what is known to be bad of the versions given: ``python known_bad.py nvidia-nvjitlink=13.0.88 ...``."""

from __future__ import annotations

import sys

from pytest_cudalink.compat.known_bad import known_bad


def main(*packages: str) -> None:
    versions = dict(pair.split("=", 1) for pair in packages)
    for entry in known_bad(versions, arch="sm_90"):
        print(f"{entry.text}\n  {entry.advice}")


if __name__ == "__main__":
    main(*sys.argv[1:])
