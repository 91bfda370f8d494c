"""Change the bytes of a cubin, and link what passes our checks with a sound sibling, each in a process of its own.

Prints how many changes we refused, how many the library took or refused, which ones killed it and which ones it did
not come to an end with. Run by ``nox -s fuzz``; it fails if more than one and ``--limit`` of the changes that pass
kill nvJitLink.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from cuda.bindings import nvjitlink
from elftools.elf.elffile import ELFFile

from pytest_cudalink.artifacts import inspect
from pytest_cudalink.linker import Program, ProgramOptions
from pytest_cudalink.linker import sample as demo

SAMPLES = Path(__file__).parent / "data" / "artifacts"
ELF_HEADER = 64
#: Bytes of .nv.capmerc.text.* whose meaning is known. What is packed behind them is not looked into
#: (docs/reference/artifacts.md), and counted apart.
PACKED_HEAD = 12
#: Seconds of computing, and of waiting, after which a link that takes milliseconds counts as endless. Time on the
#: clock alone would count a busy machine.
CPU_LIMIT, WAIT_LIMIT = 10, 300
ENDLESS = {signal.SIGXCPU, signal.SIGALRM}


def inside(image: bytes, prefix: str, head: int = 0) -> set[int]:
    """Offsets of what lies in the sections with a prefix, behind a head of some bytes."""
    found = (section for section in ELFFile(BytesIO(image)).iter_sections() if section.name.startswith(prefix))
    places = ((section["sh_offset"], section["sh_size"]) for section in found)
    return {at for start, size in places for at in range(start + head, start + size)}


def changes(image: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Every byte set to several values: the ELF header's first, then the others in a random order, always the same.

    Code is left out: the linker copies it and follows nothing in it.
    """
    code = inside(image, ".text.")
    behind = random.Random(1).sample(range(ELF_HEADER, len(image)), len(image) - ELF_HEADER)
    for at in (*range(ELF_HEADER), *behind):
        if at in code:
            continue
        for value in sorted({0, 0xFF, 0x7F, image[at] ^ 1, image[at] ^ 0x80} - {image[at]}):
            changed = bytearray(image)
            changed[at] = value
            yield at, value, bytes(changed)


def sibling_of(sample: Path, arch: str) -> bytes:
    """The other unit of the demo, made for the same architecture: alone, a unit ends at its undefined symbol."""
    source = demo.USER_SOURCE if sample.name.startswith("main") else demo.MAIN_SOURCE
    options = ProgramOptions(name="sibling.cu", arch=arch, relocatable_device_code=True)
    with Program(source, "c++", options) as program:
        return program.compile("cubin").code


def link(images: list[bytes], arch: str) -> int:
    """Link in this process: 0 linked, 1 refused."""
    handle = nvjitlink.create(1, [f"-arch={arch}"])
    try:
        for image in images:
            nvjitlink.add_data(handle, nvjitlink.InputType.CUBIN, image, len(image), "fuzz")
        nvjitlink.complete(handle)
        nvjitlink.get_linked_cubin(handle, bytearray(nvjitlink.get_linked_cubin_size(handle)))
    except nvjitlink.nvJitLinkError:
        return 1
    return 0


def outcome(images: list[bytes], arch: str) -> str:
    """What became of a link in a child of this process."""
    child = os.fork()
    if child == 0:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT, CPU_LIMIT + 5))
        signal.alarm(WAIT_LIMIT)
        os._exit(link(images, arch))
    status = os.waitpid(child, 0)[1]
    if not os.WIFSIGNALED(status):
        return "refused by nvJitLink" if os.WEXITSTATUS(status) else "linked"
    return "endless" if os.WTERMSIG(status) in ENDLESS else "killed nvJitLink"


def main() -> int:
    """Run over one sample; exit code 1 beyond the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sample", nargs="?", default="13.0/main.cubin")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after N seconds")
    parser.add_argument("--limit", type=float, default=0.002)
    options = parser.parse_args()
    sample = SAMPLES / options.sample
    image = sample.read_bytes()
    arch = inspect(image).arch or "sm_90"
    sibling = sibling_of(sample, arch)
    assert outcome([image, sibling], arch) == "linked", "the sound pair must link"
    counts: Counter[str] = Counter()
    packed = inside(image, ".nv.capmerc.text.", PACKED_HEAD)
    found: dict[str, list[tuple[int, int]]] = {"killed nvJitLink": [], "killed by packed code": [], "endless": []}
    until = time.monotonic() + options.seconds
    for at, value, changed in changes(image):
        if time.monotonic() > until:
            break
        answer = "refused by us" if inspect(changed).problems else outcome([changed, sibling], arch)
        if answer == "killed nvJitLink" and at in packed:
            answer = "killed by packed code"
        counts[answer] += 1
        if answer in found:
            found[answer].append((at, value))
    passed = counts.total() - counts["refused by us"]
    killed = counts["killed nvJitLink"]
    version = ".".join(map(str, nvjitlink.version()))
    print(f"{options.sample}, nvJitLink {version}: {dict(counts)}")
    for answer, places in found.items():
        if places:
            print(f"{answer} (offset, value): {places}")
    allowed = 1 + int(options.limit * passed)  # a short run has no room for a share
    print(f"of {passed} changes that pass, {killed} kill nvJitLink; at most {allowed} may")
    return 1 if killed > allowed else 0


if __name__ == "__main__":
    sys.exit(main())
