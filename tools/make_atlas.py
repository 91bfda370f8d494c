"""Measure the atlas of JIT-link compatibility and write ``matrices/atlas.json``: ``nox -s atlas``.

Each release compiles two units to every kind, for every architecture that it knows. The nvJitLink of every release
links them; the emulated driver of every release links them, and loads what the producer's own nvJitLink linked. Each
consumer is one process that loads its library once. Each link of nvJitLink runs in a forked child, because an input
that the library does not know can end the process, and because it remembers some refusals. The tileiras of every
release compiles the Tile IR in ``tests/data/artifacts/tile``, which ``tests/data/make_artifacts.py`` made, and its
NVRTC the headers of every release. What a run does not measure stays in the file; what only a GPU can say of a release
is marked there until one is asked.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import string
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from pytest_cudalink import emulator, toolchains
from pytest_cudalink.artifacts import inspect
from pytest_cudalink.base import regular_files
from pytest_cudalink.base.process_end import signal_name
from pytest_cudalink.base.tables import matrices_dir, read_table
from pytest_cudalink.compat import atlas, exports
from pytest_cudalink.compat.atlas import Atlas, AtlasAnswer
from pytest_cudalink.compat.exports import pinned_versions
from pytest_cudalink.compat.names import EMULATED_ARCHITECTURES
from pytest_cudalink.compat.releases import PTX_ISA
from pytest_cudalink.linker import sample
from pytest_cudalink.versions import CudaVersion

#: Performs the steps of the atlas, in batches.
_WORKER: Final = Path(__file__).with_name("atlas_worker.py")
#: The architectures of each kind.
_MOST: Final = ("sm_75", "sm_90", "sm_90a", "sm_100", "sm_120")
_MORE: Final = ("sm_100f", "sm_103", "sm_110", "sm_121")
_FEW: Final = ("sm_90", "sm_100", "sm_120")
ARCHITECTURES: Final = {
    **dict.fromkeys(("ptx", "ltoir", "cubin"), (*_MOST, *_MORE)),
    **dict.fromkeys(("linked-cubin", "fatbin-ptx", "fatbin-cubin", "fatbin-ltoir"), _MOST),
    **dict.fromkeys(("nvvm-ltoir", "merged-cubin", "merged-lto-cubin", "merged-ltoir"), _FEW),
    # also those that no tileiras has a name for
    atlas.TILE: (
        *("sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_100f"),
        *("sm_103", "sm_103a", "sm_107", "sm_110", "sm_110a", "sm_120", "sm_120a", "sm_120f", "sm_121", "sm_121a"),
    ),
}
#: What programs include of the headers of a release: the first, and of the others what it has.
_INCLUDED: Final = {
    "runtime-headers": (
        *("cuda_runtime.h", "vector_types.h", "math_constants.h", "cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h"),
        *("cuda_fp6.h", "cuda_fp4.h", "cuda_pipeline.h"),
    ),
    "cccl-headers": (
        *("cub/block/block_reduce.cuh", "cuda/std/type_traits", "cuda/std/limits", "cuda/std/atomic"),
        "cooperative_groups.h",  # of the runtime, which includes CCCL
    ),
}
FILE: Final = matrices_dir() / "atlas.json"
#: The wheels that have no place in a toolchain, by release; kept for the next run.
_WHEELS: Final = Path(__file__).parent.parent / ".cudalink" / "wheels"
_KINDS: Final = (*atlas.KINDS, *atlas.HEADERS)
_SAMPLES: Final = Path(__file__).parent.parent / "tests" / "data" / "artifacts" / "tile"
#: What tileiras needs: itself, ptxas and libNVVM.
_TILEIRAS: Final = ("nvidia-cuda-tileiras", "nvidia-cuda-nvcc", "nvidia-nvvm")
_WORKS: Final = AtlasAnswer("works")
_NOT_LINKED: Final = AtlasAnswer("not-made", text="nvJitLink does not link it")
#: What only a GPU can say, and none has said.
NOT_ASKED: Final = AtlasAnswer("not-made", text="no GPU was asked yet")
#: A link that succeeded, and linked nothing.
NO_KERNEL: Final = "the image does not have the kernel"
#: What only a newer cuda-tile can write.
NO_BYTECODE: Final = AtlasAnswer("not-made", text="no sample of this bytecode")
#: What is not promised, and the guard rails judge by the major alone.
OTHER_MAJOR: Final = AtlasAnswer("not-made", text="headers of another major were not asked")
#: What ``--short`` measures: releases that the tests need anyway, and kinds that need no other library.
_SHORT_RELEASES: Final = ("12.9", "13.0", "13.2")
_SHORT_KINDS: Final = ("ptx", "ltoir", "cubin", "linked-cubin", "merged-cubin", "merged-lto-cubin", "merged-ltoir")
_SHORT_ARCHITECTURES: Final = ("sm_90",)
#: The units of each kind: an executable cubin is one.
_UNITS: Final = {
    "main": sample.MAIN_SOURCE,
    "user": sample.USER_SOURCE,
    "whole": sample.WHOLE_SOURCE,
}
_COMPILED: Final = ("ptx", "ltoir", "cubin")
#: Who did not make something although the compiler did, by step.
_MAKERS: Final = {
    "compile": "compiler does not make it",
    "fatbins": "nvFatbin does not take it",
    "nvvm": "libNVVM does not make it",
    "merge": "nvJitLink does not make it",
}
_FATBINS: Final = tuple(kind for kind in atlas.KINDS if kind.startswith("fatbin"))
_MERGED: Final = tuple(kind for kind in atlas.KINDS if kind.startswith("merged"))
#: Kinds, and the library that makes them, which is in no toolchain.
_OTHER_LIBRARIES: Final = {**dict.fromkeys(_FATBINS, "libnvfatbin"), "nvvm-ltoir": "libnvvm"}
#: The unit "user" for libNVVM; it has no pointers, so that every dialect of NVVM IR reads it.
_NVVM_IR: Final = """\
target triple = "nvptx64-nvidia-cuda"
target datalayout = "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64-v16:\
16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
define float @user_transform(float %x) {
  %square = fmul float %x, %x
  %triple = fmul float %x, 3.0
  %sum = fadd float %square, %triple
  %y = fadd float %sum, -1.0
  %positive = fcmp ogt float %y, 0.0
  %clipped = select i1 %positive, float %y, float 0.0
  ret float %clipped
}
!nvvmir.version = !{!0}
!0 = !{i32 2, i32 0}
"""
_NVJITLINK_CODES: Final = (
    *("SUCCESS", "UNRECOGNIZED_OPTION", "MISSING_ARCH", "INVALID_INPUT", "PTX_COMPILE", "NVVM_COMPILE", "INTERNAL"),
    *("THREADPOOL", "UNRECOGNIZED_INPUT", "FINALIZE", "NULL_INPUT", "INCOMPATIBLE_OPTIONS", "INCORRECT_INPUT_TYPE"),
    *("ARCH_MISMATCH", "OUTDATED_LIBRARY", "MISSING_FATBIN", "UNRECOGNIZED_ARCH", "UNSUPPORTED_ARCH"),
    "LTO_NOT_ENABLED",
)


@dataclass(frozen=True)
class Question:
    """One question of the atlas: whether a step works for what the producer made."""

    step: str
    kind: str
    arch: str
    producer: str
    consumer: str

    def __str__(self) -> str:
        return f"{self.step} {self.consumer}: {self.kind} of {self.producer} for {self.arch}"


Answers = dict[Question, AtlasAnswer]


# --- measuring


def run_job(job: dict[str, Any], environment: dict[str, str] | None = None) -> dict[str, Any]:
    """Return the worker's answer to one job, which runs in a separate process."""
    command = [sys.executable, "-S", str(_WORKER), json.dumps(job)]
    full = {**os.environ, **environment} if environment else None
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=full, errors="replace")
    if done.returncode:
        ended = signal_name(done.returncode) or f"exit code {done.returncode}"
        said = done.stderr.strip().splitlines()[-1:] or [""]
        return {"ok": False, "call": ended, "code": done.returncode, "log": said[0][:300]}
    # libraries print to stdout as well; the answer is the last line
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def wrong_image(path: Path, arch: str, kernel: str = sample.KERNEL) -> str:
    """Return what is wrong with a linked image of the sample, or of another kernel; empty if nothing is."""
    artifact = inspect(path.read_bytes())
    if kernel not in artifact.kernels:
        return NO_KERNEL
    if artifact.undefined:
        return f"the image needs {', '.join(artifact.undefined)}"
    if artifact.arch is None or artifact.arch.rstrip("af") != arch.rstrip("af"):
        return f"the image is for {artifact.arch}"
    return ""


def measure(
    releases: Sequence[str],
    folder: Path,
    kinds: Iterable[str] = atlas.KINDS,
    architectures: Sequence[str] = (),
    wheels: Path | None = None,
    *,
    new: str = "",
    progress: Callable[[str], object] = lambda _text: None,
) -> Answers:
    """Return the answers of nvJitLink and of the emulated drivers for every pair of releases.

    `releases`: CUDA releases whose toolchains are installed.
    `folder`: where inputs and images are written, and stay.
    `architectures`: default: for each kind those of `ARCHITECTURES`.
    `wheels`: what `fetch` made. Without it, fatbins and libNVVM's LTO-IR are not measured.
    `new`: the only release whose code and whose libraries are asked about.
    `progress`: called with a text before each part.
    Raises ToolchainError if a release is not installed.
    Raises RuntimeError if a job ended with an exception in Python.
    """
    apart = (atlas.TILE, *atlas.HEADERS, *(() if wheels else _OTHER_LIBRARIES))
    wanted = [kind for kind in kinds if kind not in apart]
    asked = {kind: tuple(architectures or ARCHITECTURES[kind]) for kind in wanted}
    bench = _Bench(folder, releases, asked, wheels)
    pairs = [
        (p, c, arch, kind)
        for c in releases
        for arch in bench.architectures
        for kind in wanted
        if arch in asked[kind]
        for p in releases
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        progress("compiling")
        made = {key: answer for answers in pool.map(bench.make, releases) for key, answer in answers.items()}
        answers: Answers = {}

        def ask(step: str, jobs: Mapping[Question, dict[str, Any]], consumer: str, device: str = "") -> None:
            progress(f"{step} {consumer} {device}".rstrip())
            answers.update(bench.ask(jobs, consumer, device))

        def possible(step: str, device: str | None = None) -> dict[str, dict[Question, dict[str, Any]]]:
            """Return the jobs of a step by consumer; what cannot be asked is answered."""
            jobs: dict[str, dict[Question, dict[str, Any]]] = {}
            for producer, consumer, arch, kind in pairs:
                if device not in (None, arch.rstrip("af")):
                    continue
                # what a producer's own nvJitLink links is what a new driver loads
                if new and new not in (producer, consumer) and (producer, step) != (consumer, "nvjitlink"):
                    continue
                question = Question(step, kind, arch, producer, consumer)
                missing = made[producer, arch, kind] or bench.missing(question, answers)
                if missing:
                    answers[question] = missing
                else:
                    jobs.setdefault(consumer, {})[question] = bench.job(question)
            return jobs

        list(pool.map(lambda pair: ask("nvjitlink", pair[1], pair[0]), possible("nvjitlink").items()))
        devices = dict.fromkeys(arch.rstrip("af") for arch in bench.architectures)
        for device in (device for device in devices if device in EMULATED_ARCHITECTURES):
            for step in ("driver", "load"):
                jobs = possible(step, device).items()
                list(pool.map(lambda job, step=step, device=device: ask(step, job[1], job[0], device), jobs))
    return answers


class _Bench:
    """Inputs and images of one measurement, in one folder."""

    def __init__(
        self, folder: Path, releases: Sequence[str], kinds: Mapping[str, tuple[str, ...]], wheels: Path | None
    ) -> None:
        self.folder = folder
        self.asked = kinds
        self.architectures = tuple(dict.fromkeys(arch for archs in kinds.values() for arch in archs))
        self.chains = {release: toolchains.find(release) for release in releases}
        self.wheels = wheels or folder

    def made(self, producer: str, arch: str) -> Path:
        return self.folder / "inputs" / producer / arch

    def image(self, question: Question) -> Path:
        return self.folder / question.step / question.consumer / question.arch / f"{question.producer}.{question.kind}"

    def make(self, producer: str) -> dict[tuple[str, str, str], AtlasAnswer | None]:
        """Make every kind for every architecture; returns why not, or None, by producer, architecture and kind."""
        chain = self.chains[producer]
        relocatable = {name: source for name, source in _UNITS.items() if name != "whole"}
        fatbins, nvvm = (self.library(stem, producer) for stem in ("libnvfatbin", "libnvvm"))
        jobs: list[dict[str, Any]] = []
        parts: list[tuple[str, tuple[str, ...]]] = []
        for arch in self.architectures:
            folder = self.made(producer, arch)
            folder.mkdir(parents=True, exist_ok=True)
            base = {"arch": arch, "folder": str(folder)}
            job: dict[str, Any] = {**base, "step": "compile", "library": str(chain.library("nvrtc"))}
            link = {**base, "step": "merge", "library": str(chain.library("nvJitLink"))}
            link["suffix"] = producer.replace(".", "_")
            possible: dict[tuple[str, ...], dict[str, Any]] = {
                _COMPILED: {**job, "kinds": _COMPILED, "units": relocatable},
                ("linked-cubin",): {**job, "kinds": ["linked-cubin"], "units": {"whole": _UNITS["whole"]}},
                _FATBINS: {**base, "step": "fatbins", "library": fatbins, "units": list(relocatable)},
                ("nvvm-ltoir",): {**base, "step": "nvvm", "library": nvvm, "text": _NVVM_IR},
                **{(kind,): {**link, "kind": kind} for kind in _MERGED},
            }
            for kinds, compiled in possible.items():
                # what others are made of is always compiled
                if compiled["library"] and (
                    kinds == _COMPILED or any(arch in self.asked.get(kind, ()) for kind in kinds)
                ):
                    jobs.append(compiled)
                    parts.append((arch, kinds))
        result: dict[tuple[str, str, str], AtlasAnswer | None] = {
            (producer, arch, kind): AtlasAnswer("not-made", text="the producing release has no nvFatbin")
            for arch in self.architectures
            for kind in atlas.KINDS
        }
        for (arch, kinds), job, said in zip(parts, jobs, self._batch(jobs, "", each=1), strict=True):
            missing = None
            if not said["ok"]:
                what = "compiler does not know the architecture"
                if kinds != _COMPILED and result[producer, arch, "ptx"] is None:
                    what = _MAKERS[job["step"]]
                    if said["call"]:
                        what += f": {said['call']} answers {said['code']}" if said["code"] else f": no {said['call']}"
                missing = AtlasAnswer("not-made", text=f"the producing release's {what}")
            result.update({(producer, arch, kind): missing for kind in kinds})
        return result

    def library(self, stem: str, release: str) -> str:
        """Return the path of a library that is in no toolchain; empty if the release does not have it."""
        return str(next(self.wheels.glob(f"{stem}-{release}/**/{stem}.so*"), ""))

    def missing(self, question: Question, answers: Answers) -> AtlasAnswer | None:
        """Return why a question cannot be asked, or None."""
        producer, arch, kind = question.producer, question.arch, question.kind
        if question.step != "nvjitlink":
            try:
                emulator.emulation_for(question.consumer, device=arch.rstrip("af"))
            except emulator.EmulatorError:
                return AtlasAnswer("not-made", text="the driver has no such device")
        if question.step == "load" and kind != "linked-cubin":
            own = answers.get(Question("nvjitlink", kind, arch, producer, producer))
            if own and not own.works:
                return AtlasAnswer("not-made", text="the producer's own nvJitLink does not link it")
        return None

    def job(self, question: Question) -> dict[str, Any]:
        """Return what the worker does for a question."""
        folder, consumer = self.made(question.producer, question.arch), question.consumer
        inputs = [str(folder / f"{unit}.{question.kind}") for unit in units_of(question.kind)]
        image = self.image(question)
        if question.step == "load":
            own = Question("nvjitlink", question.kind, question.arch, question.producer, question.producer)
            image = Path(inputs[0]) if question.kind == "linked-cubin" else self.image(own)
        else:
            image.parent.mkdir(parents=True, exist_ok=True)
        return {
            "step": question.step,
            "library": str(self.chains[consumer].library("nvJitLink")),
            "suffix": consumer.replace(".", "_"),
            "arch": question.arch,
            "kind": question.kind,
            "inputs": inputs,
            "image": str(image),
            "kernel": sample.KERNEL,
        }

    def ask(self, jobs: Mapping[Question, dict[str, Any]], consumer: str, device: str) -> Answers:
        """Return the answers of one consumer; a device makes it the emulated driver."""
        environment = None
        library = str(self.chains[consumer].library("nvJitLink"))
        if device:
            environment = emulator.emulation_for(consumer, device=device, lifetime="off").environment()
            library = ""
        # the driver contains its links itself, and a process of its own for each would start a linker for each
        said = self._batch(list(jobs.values()), library, len(jobs) if device else 1, environment)
        return {
            question: _answer(question, answer, Path(job["image"]))
            for (question, job), answer in zip(jobs.items(), said, strict=True)
        }

    def _batch(
        self, jobs: list[dict[str, Any]], library: str, each: int, environment: dict[str, str] | None = None
    ) -> list[dict[str, Any]]:
        with tempfile.NamedTemporaryFile("w", dir=self.folder, suffix=".json") as file:
            json.dump(jobs, file)
            file.flush()
            said = run_job({"step": "batch", "library": library, "jobs": file.name, "each": each}, environment)
        if not said["ok"]:
            raise RuntimeError(f"a batch of {library or 'jobs'} ended: {said}")
        for answer in said["answers"]:
            if "fault" in answer:
                raise RuntimeError(answer["fault"])
        answers: list[dict[str, Any]] = said["answers"]
        return answers


def units_of(kind: str) -> tuple[str, ...]:
    """Return the units of a kind: an executable or a merged image is one."""
    return ("whole",) if kind == "linked-cubin" else ("merged",) if kind in _MERGED else ("main", "user")


def fetch(folder: Path, stem: str, releases: Iterable[str]) -> None:
    """Unpack the newest wheel with a library of each release that has one into ``STEM-RELEASE``, unless it is there."""
    for release in releases:
        version = CudaVersion.parse(release)
        target = folder / f"{stem}-{release}"
        numbers = exports.wheel_versions(stem, version)
        if numbers:
            _unpack(target, f"{exports.distributions(stem)[version.major]}=={numbers[-1]}")


def _unpack(target: Path, *wheels: str) -> bool:
    """Unpack wheels into a folder, unless it is there; returns whether it did."""
    if there := target.exists():
        return not there
    install = ("uv", "pip", "install", "-q", "--no-deps", "--target", str(target), *wheels)
    subprocess.run(install, check=True)
    return True


def fetch_tileiras(folder: Path, releases: Iterable[str]) -> dict[str, Path]:
    """Return the tileiras of each release that has one; unpack it with what it needs, unless it is there."""
    programs = {}
    for release in releases:
        pins = [pinned_versions(wheel, CudaVersion.parse(release)) for wheel in _TILEIRAS]
        if not pins[0]:
            continue
        target = folder / f"tileiras-{release}"
        home = target / "nvidia" / f"cu{release.partition('.')[0]}"
        if _unpack(target, *(f"{wheel}=={versions[-1]}" for wheel, versions in zip(_TILEIRAS, pins, strict=True))):
            # where tileiras 13.1 looks for what its wheels have in lib
            (home / "nvvm" / "lib64").mkdir(parents=True)
            (home / "nvvm" / "lib64" / "libnvvm.so").symlink_to(home / "lib" / "libnvvm.so.4")
        programs[release] = home / "bin" / "tileiras"
    return programs


def compile_tile(programs: Mapping[str, Path], architectures: Sequence[str] = (), *, new: str = "") -> Answers:
    """Return what each tileiras says of the bytecode of each release.

    Parameters
    ----------
    programs : dict of str to Path
        What `fetch_tileiras` returns.
    architectures : sequence of str, optional
        Default: those of `ARCHITECTURES`.
    new : str, optional
        The only release whose bytecode and whose tileiras are asked about.
    """
    asked = [
        Question("tileiras", atlas.TILE, arch, producer, consumer)
        for producer in programs
        for consumer in programs
        for arch in architectures or ARCHITECTURES[atlas.TILE]
        if not new or new in (producer, consumer)
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(
            zip(asked, pool.map(lambda question: _compiled(question, programs[question.consumer]), asked), strict=True)
        )


def compile_headers(kinds: Iterable[str], releases: Sequence[str], wheels: Path, *, new: str = "") -> Answers:
    """Return what the NVRTC of each release says of programs that include the headers of each release of its major.

    Those of CCCL are compiled with the runtime's headers of the NVRTC's own release.

    `kinds`: those of `atlas.HEADERS` are compiled.
    `wheels`: where those of CCCL are unpacked, unless they are there.
    `new`: the only release whose headers and whose NVRTC are asked about.
    """
    folders = {"runtime-headers": {release: toolchains.find(release).include for release in releases}}
    for release in releases if "cccl-headers" in kinds else ():
        name = "nvidia-cuda-cccl" + "-cu12" * release.startswith("12.")
        _unpack(wheels / f"cccl-{release}", f"{name}=={pinned_versions(name, CudaVersion.parse(release))[-1]}")
        (inside,) = (wheels / f"cccl-{release}").rglob("cub/cub.cuh")
        folders.setdefault("cccl-headers", {})[release] = inside.parents[1]
    pairs = [(made, read) for made in releases for read in releases if not new or new in (made, read)]
    asked = [Question("nvrtc", kind, "sm_90", *pair) for kind in kinds if kind in atlas.HEADERS for pair in pairs]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        said = pool.map(lambda question: _included(question, folders[question.kind][question.producer]), asked)
        return dict(zip(asked, said, strict=True))


def _included(question: Question, headers: Path) -> AtlasAnswer:
    if question.producer.partition(".")[0] != question.consumer.partition(".")[0]:
        return OTHER_MAJOR
    chain, (first, *others) = toolchains.find(question.consumer), _INCLUDED[question.kind]
    lines = "".join(f"#if __has_include(<{name}>)\n#include <{name}>\n#endif\n" for name in others)
    folders = dict.fromkeys((headers, *([chain.include] if question.kind == "cccl-headers" else [])))
    with tempfile.TemporaryDirectory() as folder:
        said = run_job({
            "step": "compile", "kinds": ["ptx"], "arch": question.arch, "library": str(chain.library("nvrtc")),
            "units": {"unit": f"#include <{first}>\n{lines}__global__ void kernel(float *out) {{ *out = 1; }}\n"},
            "folder": folder, "options": ["-std=c++17", *(f"-I{folder}" for folder in folders)],
        })  # fmt: skip
    if said["ok"]:
        return _WORKS
    if said["code"] < 0:
        return AtlasAnswer("crashed", code=-said["code"], name=said["call"])
    name = "NVRTC_ERROR_COMPILATION" if said["code"] == 6 else ""
    return AtlasAnswer("refused", said["call"], said["code"], name, said["log"])


def _compiled(question: Question, program: Path) -> AtlasAnswer:
    code = _SAMPLES / f"add-{question.producer}.tileir"
    if not code.exists():
        return NO_BYTECODE
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder) / "cubin"
        command = [str(program), "--gpu-name", question.arch, str(code), "-o", str(image)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not done.returncode:
            wrong = wrong_image(image, question.arch, "add")
            return AtlasAnswer("wrong", text=wrong) if wrong else _WORKS
    if done.returncode < 0:
        return AtlasAnswer("crashed", code=-done.returncode, name=signal_name(done.returncode) or "")
    said = (done.stderr or done.stdout).strip().partition("\n")[0]
    said = said.removeprefix("tileiras: ").removeprefix("error: ")
    text = said.replace(f"version: {question.producer}", "version: {bytecode}")
    text = re.sub(rf"(architecture: |'sm_){question.arch.removeprefix('sm_')}\b", r"\1{gpu}", text)
    return AtlasAnswer("refused", "tileiras", done.returncode, text=text)


def _answer(question: Question, said: Mapping[str, Any], image: Path) -> AtlasAnswer:
    """Return the answer of the worker in the atlas's words; success without the kernel is wrong."""
    if said["ok"]:
        wrong = "" if question.step == "load" else wrong_image(image, question.arch)
        return AtlasAnswer("wrong", text=wrong) if wrong else _WORKS
    if said.get("crashed"):
        return AtlasAnswer("crashed", code=-said["code"], name=said["call"])
    call, code = said["call"], said["code"]
    return AtlasAnswer(
        "refused", call.removesuffix("_v2"), code, code_name(call, code), _general(question, said["log"])
    )


def code_name(call: str, code: int) -> str:
    """Return the name of an error code of nvJitLink or of the driver; empty if it is unknown."""
    if call.startswith("nvJitLink"):
        return f"NVJITLINK_ERROR_{_NVJITLINK_CODES[code]}" if code < len(_NVJITLINK_CODES) else ""
    return _driver_codes().get(code, "")


@cache
def _driver_codes() -> dict[int, str]:
    return {code: name for code, name, *_ in read_table("emulator/errors.toml")["errors"]}


def _general(question: Question, log: str) -> str:
    """Return the log with placeholders for what differs from pair to pair only."""
    written, read = (PTX_ISA[CudaVersion.parse(version)] for version in (question.producer, question.consumer))
    log = log.replace(f".version {written[0]}.{written[1]};", ".version {written};")
    return re.sub(rf"current version is '{read[0]}\.{read[1]}'", "current version is '{read}'", log)


# --- the file


def content_of(
    answers: Answers,
    wheels: Mapping[str, Mapping[str, str]],
    measured: Mapping[str, str],
    real: Sequence[atlas.RealDriver] = (),
) -> dict[str, Any]:
    """Return the content of ``atlas.json``: the same answers give the same content."""
    releases = sorted(wheels, key=CudaVersion.parse)
    statuses = list(atlas.STATUSES)
    order = sorted(
        set(answers.values()), key=lambda answer: (statuses.index(answer.status), *list(asdict(answer).values())[1:])
    )
    letters = dict(zip(order, _letters(), strict=False))
    grids: dict[tuple[str, str, str], dict[str, dict[str, str]]] = {}
    for question, answer in answers.items():
        rows = grids.setdefault((question.step, question.kind, question.arch), {})
        rows.setdefault(question.producer, {})[question.consumer] = letters[answer]

    def place(key: tuple[str, str, str]) -> tuple[int, int, tuple[int, str]]:
        step, kind, arch = key
        number = int(re.sub(r"\D", "", arch))
        return list(atlas.STEPS).index(step), _KINDS.index(kind), (number, arch)

    return {
        "format": atlas.FORMAT,
        "measured": dict(measured),
        "real": [asdict(machine) for machine in real],
        "releases": releases,
        "wheels": {release: dict(sorted(wheels[release].items())) for release in releases},
        "answers": {letter: asdict(answer) for answer, letter in letters.items()},
        "grids": [
            {
                "step": step,
                "kind": kind,
                "arch": arch,
                "rows": {
                    producer: "".join(
                        grids[step, kind, arch][producer][consumer]
                        for consumer in atlas.columns(step, releases, wheels, real)
                    )
                    for producer in releases
                    if producer in grids[step, kind, arch]
                },
            }
            for step, kind, arch in sorted(grids, key=place)
        ],
    }


def _letters() -> Iterator[str]:
    yield from string.ascii_lowercase + string.ascii_uppercase + string.digits
    yield from (chr(code) for code in range(0x3B1, 0x3CA))  # Greek
    yield from (chr(code) for code in range(0x430, 0x450))  # Cyrillic


def text_of(content: Mapping[str, Any]) -> str:
    """Return the file's text: one line for each release, answer and row, so that a difference is read easily."""

    def line(value: object) -> str:
        return json.dumps(value, ensure_ascii=False)

    def block(items: Iterable[str], brackets: str, depth: int) -> str:
        indent = " " * depth
        return f"{brackets[0]}\n" + ",\n".join(f"{indent} {item}" for item in items) + f"\n{indent}{brackets[1]}"

    def pairs(mapping: Mapping[str, Any], depth: int) -> str:
        return block((f"{line(key)}: {line(value)}" for key, value in mapping.items()), "{}", depth)

    grids = (
        line({key: grid[key] for key in ("step", "kind", "arch")})[:-1] + f', "rows": {pairs(grid["rows"], 2)}}}'
        for grid in content["grids"]
    )
    parts = {
        **{key: line(content[key]) for key in ("format", "measured")},
        "real": block(map(line, content["real"]), "[]", 1) if content["real"] else "[]",
        "releases": line(content["releases"]),
        **{key: pairs(content[key], 1) for key in ("wheels", "answers")},
        "grids": block(grids, "[]", 1),
    }
    return block((f'"{key}": {value}' for key, value in parts.items()), "{}", 0) + "\n"


def answers_of(known: Atlas) -> Answers:
    """Return the answers of a file, as `measure` returns them."""
    return {
        Question(grid.step, grid.kind, grid.arch, producer, consumer): known.answers[letter]
        for grid in known.grids
        for producer, letters in grid.rows.items()
        for consumer, letter in zip(grid.consumers, letters, strict=True)
    }


def differences(old: Answers, new: Answers) -> list[str]:
    """Return a sentence for each question of the new answers that the old ones answer otherwise."""
    result = []
    for question, answer in new.items():
        before = old.get(question)
        if before != answer:
            result.append(f"{question}: {before or 'not measured'} in the file, {answer} now")
    return result


def with_real(known: Atlas, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of the atlas with what ``python -m tools.atlas_on_gpu`` measured on a GPU."""
    real = atlas.RealDriver(**{key: str(result[key]) for key in ("driver", "cuda", "device", "date", "command")})
    kept = {question: answer for question, answer in answers_of(known).items() if not question.step.startswith("real")}
    for row in result["answers"]:
        question = Question(row["step"], row["kind"], row["arch"], row["producer"], row["consumer"] or real.cuda)
        answer = AtlasAnswer(**row["answer"])
        kept[question] = replace(answer, text=_general(question, answer.text))
    return content_of(kept, known.wheels, known.measured, [real])


def unasked(answers: Answers, releases: Sequence[str], real: Sequence[atlas.RealDriver]) -> Answers:
    """Return an answer for each question to a real driver that none was asked yet, or that cannot be asked."""
    archs = {question.arch for question in answers if question.step == "real-run"}
    kinds = {(question.kind, question.arch) for question in answers if question.step == "nvjitlink"}
    result: Answers = {}
    for kind, arch in ((kind, arch) for kind, arch in kinds if arch in archs):
        for producer in releases:
            own = answers[Question("nvjitlink", kind, arch, producer, producer)]
            missing = own if own.status == "not-made" else None
            for machine in real:
                loads = kind == "linked-cubin" or own.works
                result[Question("real-driver", kind, arch, producer, machine.cuda)] = missing or NOT_ASKED
                load = Question("real-load", kind, arch, producer, machine.cuda)
                result[load] = missing or (NOT_ASKED if loads else _NOT_LINKED)
            for consumer in releases:
                linked = answers[Question("nvjitlink", kind, arch, producer, consumer)]
                run = Question("real-run", kind, arch, producer, consumer)
                not_run = linked if linked.status == "not-made" else _NOT_LINKED
                result[run] = NOT_ASKED if linked.works else not_run
    return {question: answer for question, answer in result.items() if question not in answers}


def emulator_differences(known: Atlas) -> list[str]:
    """Return a sentence for each link or load that a real driver answers otherwise than the emulated one."""
    answers = answers_of(known)
    result = []
    for question, answer in answers.items():
        if question.step not in ("real-driver", "real-load"):
            continue
        emulated = answers.get(replace(question, step=question.step.removeprefix("real-")))
        same = emulated and (emulated.status, emulated.call, emulated.code) == (answer.status, answer.call, answer.code)
        if emulated and not same:
            result.append(f"{question}: {answer}; the emulated driver: {emulated}")
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write, or compare; returns 1 if the file differs from fresh answers."""
    parser = argparse.ArgumentParser(prog="python -m tools.make_atlas", description=__doc__.partition("\n")[0])
    parser.add_argument("releases", nargs="*", metavar="RELEASE", help="default: all that have wheels")
    parser.add_argument("--file", type=Path, default=FILE, help="default: %(default)s")
    parser.add_argument("--kind", action="append", choices=_KINDS, help="default: all")
    parser.add_argument("--arch", action="append", help="default: those of the kind in the file")
    parser.add_argument("--new", metavar="RELEASE", default="", help="only what it makes, and what its libraries read")
    parser.add_argument("--folder", type=Path, help="keep inputs and images there")
    parser.add_argument("--check", action="store_true", help="compare the file with fresh answers; write nothing")
    short = f"only {', '.join((*_SHORT_RELEASES, *_SHORT_KINDS, *_SHORT_ARCHITECTURES))}; with --check or --show"
    parser.add_argument("--short", action="store_true", help=short)
    parser.add_argument("--show", action="store_true", help="print fresh answers; write nothing")
    parser.add_argument(
        "--real", type=Path, metavar="RESULT", help="add what the GPU machine measured; measure nothing"
    )
    options = parser.parse_args(arguments)
    if options.short and not (options.check or options.show):
        parser.error("--short would write a part of the file; give --check or --show with it")
    if options.real:
        content = with_real(_read(options.file), json.loads(options.real.read_text(encoding="utf-8")))
        regular_files.write_whole(options.file, text_of(content))
        sys.stdout.write("".join(f"{difference}\n" for difference in emulator_differences(atlas.atlas_of(content))))
        return 0
    every = [str(release) for release in toolchains.releases()]
    releases = options.releases or (_SHORT_RELEASES if options.short else every)
    for release in releases:
        toolchains.add(release)
    with tempfile.TemporaryDirectory(prefix="cudalink-atlas-") as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        kinds = options.kind or (_SHORT_KINDS if options.short else _KINDS)
        architectures = options.arch or (_SHORT_ARCHITECTURES if options.short else ())
        for stem in {_OTHER_LIBRARIES[kind] for kind in kinds if kind in _OTHER_LIBRARIES}:
            fetch(_WHEELS, stem, releases)
        answers = measure(releases, folder, kinds, architectures, _WHEELS, new=options.new, progress=_say)
    if atlas.TILE in kinds:
        answers |= compile_tile(fetch_tileiras(_WHEELS, releases), architectures, new=options.new)
    answers |= compile_headers(kinds, releases, _WHEELS, new=options.new)
    if options.show:
        sys.stdout.write("".join(f"{question}: {answer}\n" for question, answer in answers.items()))
        return 0
    if options.check:
        wrong = differences(answers_of(_read(options.file)), answers)
        sys.stdout.write("".join(f"{problem}\n" for problem in wrong))
        return bool(wrong)
    before = _read(options.file) if options.file.exists() else None
    real: tuple[atlas.RealDriver, ...] = ()
    if before and set(before.releases) <= set(releases):
        known = answers_of(before)
        if known == known | answers:
            return 0
        answers = known | answers
        real = before.real
        answers |= unasked(answers, releases, real)
    measured = before.measured if before and options.kind else _measured_here()  # of some kinds, not all
    content = content_of(answers, {release: _wheels(release) for release in releases}, measured, real)
    regular_files.write_whole(options.file, text_of(content))
    return 0


def _measured_here() -> dict[str, str]:
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "command": "nox -s atlas",
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "version": version("pytest-cudalink"),
    }


def _read(file: Path) -> Atlas:
    return atlas.atlas_of(json.loads(file.read_text(encoding="utf-8")))


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _wheels(release: str) -> dict[str, str]:
    packages = toolchains.find(release).packages.items()
    versions = {short: number for name, number in packages for short in ("nvrtc", "nvjitlink") if short in name}
    tileiras = pinned_versions(_TILEIRAS[0], CudaVersion.parse(release))
    return versions | ({"tileiras": tileiras[-1]} if tileiras else {})


if __name__ == "__main__":
    raise SystemExit(main())
