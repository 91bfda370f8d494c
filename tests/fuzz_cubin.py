"""Change every byte of a cubin's tables, and link what passes our checks, each in a process of its own.

Prints how many changes we refused, how many the library took or refused, and which ones killed it. Run by
``nox -s fuzz``; it fails if more than ``--limit`` of the changes that pass still kill nvJitLink.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from cuda.bindings import nvjitlink

from pytest_cudalink.artifacts import inspect

SAMPLES = Path(__file__).parent / "data" / "artifacts"


def changes(image: bytes, step: int) -> Iterator[tuple[int, bytes]]:
    """Every `step`-th byte set to several values; code itself is left out, nothing in it is followed."""
    for at in range(0, len(image), step):
        for value in {0, 0xFF, 0x7F, image[at] ^ 1, image[at] ^ 0x80} - {image[at]}:
            changed = bytearray(image)
            changed[at] = value
            yield at, bytes(changed)


def link(image: bytes, arch: str) -> int:
    """Link one image in this process: 0 linked, 1 refused."""
    handle = nvjitlink.create(1, [f"-arch={arch}"])
    try:
        nvjitlink.add_data(handle, nvjitlink.InputType.CUBIN, image, len(image), "fuzz")
        nvjitlink.complete(handle)
    except nvjitlink.nvJitLinkError:
        return 1
    return 0


def main() -> int:
    """Run over one sample; exit code 1 beyond the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sample", nargs="?", default="13.0/main.cubin")
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--limit", type=float, default=0.002)
    options = parser.parse_args()
    image = (SAMPLES / options.sample).read_bytes()
    arch = inspect(image).arch or "sm_90"
    quiet = os.open(os.devnull, os.O_WRONLY)
    counts: Counter[str] = Counter()
    killed = []
    for at, changed in changes(image, options.step):
        if inspect(changed).problems:
            counts["refused by us"] += 1
            continue
        child = os.fork()
        if child == 0:
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            signal.alarm(20)
            os._exit(link(changed, arch))
        status = os.waitpid(child, 0)[1]
        if os.WIFSIGNALED(status):
            counts["killed nvJitLink"] += 1
            killed.append(at)
        else:
            counts["refused by nvJitLink" if os.WEXITSTATUS(status) else "linked"] += 1
    passed = sum(counts.values()) - counts["refused by us"]
    share = counts["killed nvJitLink"] / max(passed, 1)
    version = ".".join(map(str, nvjitlink.version()))
    print(f"{options.sample}, nvJitLink {version}: {dict(counts)}, offsets {sorted(set(killed))}")
    print(f"of {passed} changes that pass, {share:.3%} kill nvJitLink (limit {options.limit:.1%})")
    return 1 if share > options.limit else 0


if __name__ == "__main__":
    sys.exit(main())
