"""Damaged images reach no library: errors, not signals. Each is linked in a separate process."""

import base64
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable

import pytest
from cuda.bindings import nvjitlink

from pytest_cudalink import emulator
from pytest_cudalink.artifacts import inspect
from pytest_cudalink.compat.architectures import known_architectures
from pytest_cudalink.linker import Program, ProgramOptions

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

#: What linking changes most: functions that are dropped, called by address or virtual, and statics of templates.
RICH = r"""
struct Base { __device__ virtual int f(int x) { return x; } };
struct Derived : Base { __device__ int f(int x) override { return 2 * x; } };
__device__ int table[100]; __constant__ float factors[64];
template <class T> __global__ void shuffle(T *p, int n) {
    __shared__ T values[128];
    int i = threadIdx.x;
    values[i % 128] = p[i];
    __syncthreads();
    if (i < n) p[i] = values[i * 7 % 128] + factors[i % 64];
}
template __global__ void shuffle<float>(float *, int);
template __global__ void shuffle<double>(double *, int);
__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__device__ __noinline__ int unused(int n) { return fibonacci(n) + table[n]; }
__global__ void calls(int *p, int k) {
    Base b; Derived d;
    Base *q = k ? &b : &d;
    *p = q->f(k) + fibonacci(k);
}
__device__ int one(int x) { return x + 1; }
__device__ int two(int x) { return x + 2; }
__device__ int (*choices[2])(int) = {one, two};
__global__ void indirect(int *p, int k) { *p = choices[k](k); }
__global__ void adds(int *p) { atomicAdd(p, table[threadIdx.x % 100]); }
__global__ void mathematics(double *p, int n) {
    for (int i = 0; i < n; i++) *p += sin(*p) * pow(*p, 1.5) + tgamma(*p);
}
"""

CUTS = [64, 200, 1000, 0.5, 0.9, -1]
Images = list[tuple[str, bytes]]
Feed = Callable[[list[Images]], list[str]]


@pytest.fixture(params=["nvjitlink", "driver"])
def feed(request, toolkit) -> Feed:
    """Link each of some lists of images with a backend, the driver being emulated, and give what became of each."""
    planned = emulator.emulation_for(toolkit)
    assert not planned.missing

    def run(links: list[Images]) -> list[str]:
        lines = [json.dumps([(kind, base64.b64encode(image).decode()) for kind, image in images]) for images in links]
        command, env = [sys.executable, "-c", CHILD, request.param], {**os.environ, **planned.environment()}
        text = "\n".join(lines)
        done = subprocess.run(command, env=env, input=text, capture_output=True, text=True, check=False)
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
    """Every other kind that can be linked is refused by us or by the library, or links."""
    kinds = {"ptx": "ptx", "ltoir": "ltoir", "fatbin": "fatbin", "o": "object", "a": "library"}
    answers = feed(
        [
            [(kinds[kind], cut(image, at))]
            for (_, _, kind), image in sorted((name.rpartition("."), image) for name, image in samples.items())
            if kind in kinds
            for at in CUTS
        ]
    )
    assert set(answers) <= {"ValueError", "LinkError", "linked"}
    assert answers.count("ValueError") > 10


def test_one_changed_byte(feed: Feed, compiled) -> None:
    """The ELF header's bytes of a cubin, and some others: no signal; ``nox -s abuse`` tries more of them."""
    image, sibling = compiled["main", "cubin"].code, compiled["user", "cubin"].code
    links: list[Images] = [[("cubin", image), ("cubin", sibling)]]
    for at in (*range(64), *range(64, len(image), 194)):
        for value in (0, 0xFF):
            changed = bytearray(image)
            changed[at] = value
            links.append([("cubin", bytes(changed)), ("cubin", sibling)])
    sound, *answers = feed(links)
    assert sound == "linked"
    counts = Counter(answers)
    assert set(counts) <= {"ValueError", "LinkError", "VersionSkewError", "linked"}
    assert counts["ValueError"] > 40


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
    for source in (
        functions,
        RICH,
        'extern "C" __global__ void k() {}',
        "__device__ int value; __constant__ int t[5];",
    ):
        for more in ({}, {"relocatable_device_code": True}, {"relocatable_device_code": True, "debug": True}):
            with Program(source, "c++", ProgramOptions(arch=arch, **more)) as program:
                cubin = program.compile("cubin").code
            assert inspect(cubin).problems == ()
            if more:
                for words in ([], ["-r"] if toolkit >= (13, 0) else []):
                    assert inspect(linked(cubin, f"-arch={arch}", *words)).problems == ()


def linked(cubin: bytes, *options: str) -> bytes:
    """What nvJitLink makes of one relocatable cubin; with ``-r`` it is relocatable again."""
    handle = nvjitlink.create(len(options), list(options))
    try:
        nvjitlink.add_data(handle, nvjitlink.InputType.CUBIN, cubin, len(cubin), "cubin")
        nvjitlink.complete(handle)
        image = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, image)
        return bytes(image)
    finally:
        nvjitlink.destroy(handle)
