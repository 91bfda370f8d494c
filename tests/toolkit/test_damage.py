"""Damaged images reach no library: errors, not signals. Each is linked in a process of its own."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable

import pytest

from pytest_cudalink import emulator
from pytest_cudalink.artifacts import inspect
from pytest_cudalink.linker import Program, ProgramOptions
from pytest_cudalink.versions import known_architectures

# Links the images of each line of standard input in a fork, so that a heap which one of them spoils is not the next
# one's, and answers with the type of what happened or the signal that ended the fork.
CHILD = """
import base64, json, os, sys
import cuda.bindings.nvjitlink  # (once, not in every fork)
from pytest_cudalink.linker import Linker, LinkerOptions, ObjectCode
options = LinkerOptions(arch="sm_90", check_inputs=False)
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # nvJitLink writes to stdout

def link(images):
    try:
        codes = [getattr(ObjectCode, "from_" + kind)(base64.b64decode(data)) for kind, data in images]
        with Linker(*codes, options=options, backend=sys.argv[1]) as linker:
            linker.link()
        return "linked"
    except (ValueError, RuntimeError) as error:
        return type(error).__name__

for line in sys.stdin:
    fork = os.fork()
    if fork == 0:
        print(link(json.loads(line)), file=answers, flush=True)
        os._exit(0)
    status = os.waitpid(fork, 0)[1]
    if status:
        print(f"wait status {status:#x}", file=answers, flush=True)
"""

CUTS = [64, 200, 1000, 0.5, 0.9, -1]
Images = list[tuple[str, bytes]]
Feed = Callable[[list[Images]], list[str]]


@pytest.fixture(params=["nvjitlink", "driver"])
def feed(request, toolkit) -> Feed:
    """Link each of some lists of images with a backend, the driver being emulated, and give what became of each."""
    planned = emulator.plan(toolkit)
    assert not planned.missing

    def run(links: list[Images]) -> list[str]:
        lines = [json.dumps([(kind, base64.b64encode(image).decode()) for kind, image in images]) for images in links]
        done = subprocess.run(
            [sys.executable, "-c", CHILD, request.param],
            env={**os.environ, **planned.environment()},
            input="\n".join(lines),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        answers = done.stdout.splitlines()
        assert len(answers) == len(links), done.stderr[-2000:]
        return answers

    return run


def cut(image: bytes, at: float) -> bytes:
    return image[: int(len(image) * at) if isinstance(at, float) else at]


def test_truncated_cubins(feed: Feed, samples) -> None:
    """Cubins of every toolkit, linked ones too, are a ValueError of ours; nvJitLink 13.2 and driver 580 segfault."""
    cubins = [image for name, image in sorted(samples.items()) if name.endswith(".cubin")]
    assert set(feed([[("cubin", cut(image, at))] for image in cubins for at in CUTS])) == {"ValueError"}


def test_other_truncated_kinds(feed: Feed, samples) -> None:
    """Every other kind is refused by us or by the library, or links."""
    kinds = {"ptx": "ptx", "ltoir": "ltoir", "fatbin": "fatbin", "o": "object", "a": "library"}
    answers = feed(
        [
            [(kinds[name.rsplit(".", 1)[1]], cut(image, at))]
            for name, image in sorted(samples.items())
            if not name.endswith(".cubin")
            for at in CUTS
        ]
    )
    assert set(answers) <= {"ValueError", "LinkError", "linked"}
    assert answers.count("ValueError") > 10


def test_one_changed_byte(feed: Feed, compiled) -> None:
    """The ELF header's bytes of a cubin, and some others: no signal; ``nox -s fuzz`` tries more of them."""
    image, sibling = compiled["main", "cubin"].code, compiled["user", "cubin"].code
    links: list[Images] = [[("cubin", image), ("cubin", sibling)]]
    for at in (*range(64), *range(64, len(image), 97)):
        for value in (0, 0xFF):
            changed = bytearray(image)
            changed[at] = value
            links.append([("cubin", bytes(changed)), ("cubin", sibling)])
    sound, *answers = feed(links)
    assert sound == "linked"
    counts = Counter(answers)
    assert set(counts) <= {"ValueError", "LinkError", "VersionSkewError", "linked"}
    assert counts["ValueError"] > 50


@pytest.mark.parametrize("arch", ["sm_75", "sm_90a", "sm_100", "sm_120a"])
def test_sound_cubins_are_sound(arch: str, toolkit) -> None:
    """What NVRTC makes passes: functions that call each other, several of them in a section, and no code at all."""
    if arch not in known_architectures(toolkit):
        pytest.skip(f"CUDA {toolkit} does not know {arch}")
    functions = "".join(
        f'extern "C" __device__ __noinline__ float f{i}(float x) {{ return x * {i} + 1; }}'
        f'extern "C" __global__ void k{i}(float *x) {{ *x = f{i}(sinf(*x)); }}\n'
        for i in range(20)
    )
    for source in (functions, "__device__ int value = 3; __constant__ int table[5];"):
        for more in ({}, {"relocatable_device_code": True}, {"relocatable_device_code": True, "debug": True}):
            with Program(source, "c++", ProgramOptions(arch=arch, **more)) as program:
                assert inspect(program.compile("cubin").code).problems == ()
