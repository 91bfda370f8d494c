"""Measure every pair of toolchains, and find what contradicts a prediction."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from .. import emulator, scratch, toolchains
from ..artifacts import inspect
from ..compat.link_rules import ARCH
from ..linker import sample
from ..regular_files import DATA, read_text
from ..report import whole_file
from ..report.mend import described, mended
from ..report.records import RecordError
from ..report.views import Section, section
from ..signals import signal_name
from ..tables import read_matrix
from ..versions import CudaVersion
from . import rules

#: What is measured by default: the kinds of relocatable code.
KINDS: Final = ("ptx", "ltoir", "cubin")
ALL_KINDS: Final = (*KINDS, "linked-cubin")
_UNITS: Final = {"main": sample.MAIN_SOURCE, "user": sample.USER_SOURCE}
_WORKER = Path(__file__).with_name("worker.py")
_STEP = Literal["nvjitlink", "driver", "load"]
#: The library that performs each step.
LIBRARY_OF: Final[dict[_STEP, str]] = {"nvjitlink": "nvjitlink", "driver": "driver", "load": "driver"}
STEPS: Final = tuple(LIBRARY_OF)


@dataclass(frozen=True)
class Measurement:
    """One measured link or load."""

    producer: str  # CUDA release whose NVRTC compiled
    consumer: str  # CUDA release that linked, or whose driver loaded
    kind: str  # one of `ALL_KINDS`
    # "nvjitlink" or "driver": that release linked. "load": the producer's own nvJitLink linked, and the driver of the
    # other release loaded the image.
    step: str
    ok: bool
    answer: str = ""  # empty if ok; else the call, its code and the log, or what is wrong with the image
    packages: tuple[str, ...] = ()  # exact wheels on both sides; a newer patch is measured again
    # whether each rule predicts success; only rules that apply to this step
    predicted: dict[str, bool] = field(default_factory=dict)
    build: str = ""  # hash of this package; with another emulated driver or other rules, the pair is measured again
    arch: str = ARCH  # architecture that was compiled and linked for

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.producer, self.consumer, self.kind, self.step, tuple(self.packages), self.build, self.arch)


@dataclass(frozen=True)
class Finding:
    """A prediction that the measurement contradicts."""

    measurement: Measurement
    rule: str  # "artifact", "guard rails", or "policy NAME"
    unsafe: bool  # True: the rule allows a link that fails. False: the rule rejects a link that works.

    def __str__(self) -> str:
        one = self.measurement
        word = "allows what fails" if self.unsafe else "rejects what works"
        how = {
            "nvjitlink": f"nvJitLink {one.consumer} links {one.kind} of {one.producer}",
            "driver": f"driver {one.consumer} links {one.kind} of {one.producer}",
            "load": f"driver {one.consumer} loads what nvJitLink {one.producer} linked from {one.kind}",
        }[one.step]
        return f"{self.rule} {word}: {how}" + (f" ({one.answer})" if one.answer else "")


def findings(measured: Iterable[Measurement]) -> list[Finding]:
    """Return every disagreement, those of rules that allow too much first."""
    found = [
        Finding(one, rule, unsafe=predicted)
        for one in measured
        for rule, predicted in one.predicted.items()
        if predicted != one.ok
    ]
    return sorted(found, key=lambda finding: not finding.unsafe)


# --- predictions


def _predictions(step: str, kind: str, producer: CudaVersion, consumer: CudaVersion, code: bytes) -> dict[str, bool]:
    """Return the prediction of each rule for one step; that of the artifact is read from its bytes.

    No rule is asked about executable cubins.
    """
    if kind not in KINDS:
        return {}
    found = {one.rule: one.works for one in rules.predictions(step, kind, producer, consumer)}
    judged = {name: works for name, works in found.items() if name == "guard rails" or name.startswith("policy ")}
    if step == "load":
        return judged
    needs = inspect(code).needs
    reads = needs is None or needs.met_by(consumer)
    return {"artifact": reads and not (step == "driver" and kind == "ltoir"), **judged}


# --- measuring


def run_job(job: dict[str, Any], environment: dict[str, str] | None = None, worker: Path = _WORKER) -> dict[str, Any]:
    """Return the answer of one job, which runs in a separate process."""
    command = [sys.executable, "-S", str(worker), json.dumps(job)]
    full = {**os.environ, **environment} if environment else None
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=full, errors="replace")  # noqa: S603
    if done.returncode:
        ended = signal_name(done.returncode) or f"exit code {done.returncode}"
        said = done.stderr.strip().splitlines()[-1:] or [""]
        return {"ok": False, "call": ended, "code": done.returncode, "log": said[0][:300]}
    # libraries print to stdout as well; the answer is the last line
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _failure(answer: dict[str, Any]) -> str:
    return "" if answer["ok"] else f"{answer['call']}: {answer['code']} {answer['log']}".rstrip(" :")


#: A link that succeeded, and linked nothing.
NO_KERNEL: Final = "the image does not have the kernel"


def wrong_image(path: Path, arch: str, kernel: str = sample.KERNEL) -> str:
    """Return what is wrong with a linked image of the sample, or of another kernel; empty if nothing is."""
    found = inspect(path.read_bytes())
    if kernel not in found.kernels:
        return NO_KERNEL
    if found.undefined:
        return f"the image needs {', '.join(found.undefined)}"
    if found.arch is None or found.arch.rstrip("af") != arch.rstrip("af"):
        return f"the image is for {found.arch}"
    return ""


class _Bench:
    """Artifacts and images of one measurement, in a temporary folder."""

    def __init__(self, folder: Path, chains: dict[str, toolchains.Toolchain], kinds: Sequence[str], arch: str) -> None:
        self.folder = folder
        self.kinds = kinds
        self.arch = arch
        self.chains = chains

    def prepare(self, version: str) -> None:
        """Compile with one release, and link with its own nvJitLink."""
        chain, folder = self.chains[version], self.folder / version
        folder.mkdir()
        job = {"step": "compile", "library": str(chain.library("nvrtc")), "arch": self.arch, "folder": str(folder)}
        for kind in self.kinds:
            units = {"whole": sample.WHOLE_SOURCE} if kind == "linked-cubin" else _UNITS
            answer = run_job({**job, "kinds": [kind], "units": units})
            if not answer["ok"]:
                msg = (
                    f"NVRTC of the toolchain {chain.path} does not compile the sample for {self.arch}: "
                    f"{_failure(answer)}"
                )
                raise toolchains.ToolchainError(msg)
        for kind in self.kinds:
            run_job(self.job("nvjitlink", version, version, kind) | {"image": str(folder / f"own-{kind}.image")})

    def job(self, step: str, producer: str, consumer: str, kind: str) -> dict[str, Any]:
        made = self.folder / producer
        whole = kind == "linked-cubin"
        inputs = [str(made / f"{unit}.{kind}") for unit in (("whole",) if whole else _UNITS)]
        image = made / (f"own-{kind}.image" if step == "load" else f"{step}-{consumer}-{kind}.image")
        if whole and step == "load":
            image = Path(inputs[0])
        return {
            "step": step,
            "library": str(self.chains[consumer].library("nvJitLink")),
            "suffix": consumer.replace(".", "_"),
            "arch": self.arch,
            "kind": kind,
            "inputs": inputs,
            "image": str(image),
            "kernel": sample.KERNEL,
        }

    def one(self, step: str, producer: str, consumer: str, kind: str) -> Measurement:
        """Measure one step."""
        environment = None
        if step != "nvjitlink":
            environment = emulator.emulation_for(consumer, device=self.arch.rstrip("af"), lifetime="off").environment()
        job = self.job(step, producer, consumer, kind)
        answer = run_job(job, environment)
        if answer["ok"] and step != "load" and (wrong := wrong_image(Path(job["image"]), self.arch)):
            answer = {"ok": False, "call": wrong, "code": "", "log": ""}
        versions = CudaVersion.parse(producer), CudaVersion.parse(consumer)
        code = Path(job["inputs"][-1]).read_bytes()
        return Measurement(
            producer,
            consumer,
            kind,
            step,
            answer["ok"],
            _failure(answer),
            _packages(self.chains, producer, consumer),
            _predictions(step, kind, *versions, code),
            package_hash(),
            self.arch,
        )


@cache
def package_hash() -> str:
    """Return a hash of this package's code, data and emulated driver."""
    package = Path(__file__).parent.parent
    files = [path for pattern in ("*.py", "*.toml", "*.so.1") for path in package.rglob(pattern)]
    digest = hashlib.sha256(json.dumps(read_matrix("dispatch.toml")).encode())
    for path in sorted(files):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _packages(chains: dict[str, toolchains.Toolchain], *versions: str) -> tuple[str, ...]:
    return tuple(
        f"{name}=={version}"
        for one in versions
        for name, version in chains[one].packages.items()
        if "runtime" not in name
    )


def measure(
    producers: Sequence[str] | None = None,
    journal: Path | None = None,
    progress: Callable[[int, int], object] = lambda _done, _all: None,
    workers: int | None = None,
    *,
    consumers: Sequence[str] | None = None,
    kinds: Sequence[str] = KINDS,
    steps: Sequence[_STEP] = STEPS,
    arch: str = ARCH,
) -> list[Measurement]:
    """Return the measurements of every pair of a producer and a consumer.

    `producers`: CUDA releases; default every installed toolchain.
    `journal`: a file of JSON lines. Its measurements are not repeated, and each new one is appended at once, so that an
    interrupted run can continue.
    `progress`: called with the number of measurements so far and of all.
    `workers`: number of parallel processes; by default one for each processor.
    `consumers`: CUDA releases; default the producers.
    `kinds`: some of `ALL_KINDS`.
    `steps`: some of `STEPS`.
    `arch`: architecture to compile and link for.
    Raises ToolchainError if a release is not installed, or its compiler does not work or does not know the
    architecture.
    Raises EmulatorError if no emulated driver of a release has a device of the architecture.
    """
    found = {str(one.version): one for one in reversed(toolchains.installed())}
    made, read = (
        {str(chain.version): chain for chain in sorted(map(toolchains.find, versions))}
        for versions in (producers or found, consumers or producers or found)
    )
    wanted = [(step, p, c, kind) for p in made for c in read for kind in kinds for step in steps]
    known = {one.key: one for one in load(journal)} if journal is not None and journal.exists() else {}
    if journal is not None and known and not journal.read_bytes().endswith(b"\n"):
        # an interrupted run left half a line, to which the next measurement would be appended
        whole_file.write(journal, "".join(json.dumps(asdict(one)) + "\n" for one in known.values()))
    chains = made | read
    result = []
    missing = []
    for step, producer, consumer, kind in wanted:
        key = (producer, consumer, kind, step, _packages(chains, producer, consumer), package_hash(), arch)
        if key in known:
            result.append(known[key])
        else:
            missing.append((step, producer, consumer, kind))
    progress(len(result), len(wanted))
    if missing:
        with (
            tempfile.TemporaryDirectory(dir=scratch.root()) as folder,
            ThreadPoolExecutor(workers or os.cpu_count()) as pool,
        ):
            bench = _Bench(Path(folder), chains, kinds, arch)
            list(pool.map(bench.prepare, dict.fromkeys(producer for _, producer, _, _ in missing)))
            for one in pool.map(lambda step: bench.one(*step), missing):
                result.append(one)
                if journal is not None:
                    _append(journal, one)
                progress(len(result), len(wanted))
    order = {step: number for number, step in enumerate(wanted)}
    return sorted(result, key=lambda one: order[one.step, one.producer, one.consumer, one.kind])  # type: ignore[index]


def _append(journal: Path, one: Measurement) -> None:
    journal.parent.mkdir(parents=True, exist_ok=True)
    with journal.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(one)) + "\n")


def load(path: Path) -> list[Measurement]:
    """Return the measurements of a journal, or of ``cudalink can-link --measure --json``; a cut last line is ignored.

    Raises RecordError if the file is neither; names the place in the file.
    """
    try:
        text = read_text(path, DATA)
        if text.startswith("{\n"):
            rows = enumerate(json.loads(text)["measurements"])
            return [_measurement(row, f"measurements[{number}]") for number, row in rows]
        *lines, cut = text.split("\n")
        rows = enumerate((json.loads(line) for line in lines or [cut]), 1)
        return [_measurement(row, f"line {number}") for number, row in rows]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        why = error if isinstance(error, RecordError) else f"{type(error).__name__}: {error}"
        msg = f"{path}: not a file that `cudalink can-link --measure --json` wrote ({why})"
        raise RecordError(msg) from error


def _measurement(row: object, place: str) -> Measurement:
    """Return a measurement of a file; keys of a later version are ignored."""
    found, wrong = mended(Measurement, row, place)
    choices = {"step": tuple(_TITLES), "kind": ALL_KINDS}
    wrong += [
        f"{place}.{name} is {described(getattr(found, name))}; expected one of {', '.join(choices[name])}"
        for name in choices
        if getattr(found, name) not in choices[name]
    ]
    if wrong:
        raise RecordError(wrong[0])
    return found


# --- showing


def table(measured: Sequence[Measurement], step: str, kind: str) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a table: producer, then ``yes`` or ``no`` for each consumer, with ``!`` if a rule disagrees.

    A pair that was not measured, as in a file that is not complete, has an empty text.
    """
    cells = {(one.producer, one.consumer): one for one in measured if (one.step, one.kind) == (step, kind)}
    for producer in dict.fromkeys(producer for producer, _ in cells):
        row = [producer]
        for consumer in dict.fromkeys(one.consumer for one in measured):
            one = cells.get((producer, consumer))
            wrong = one is not None and any(predicted != one.ok for predicted in one.predicted.values())
            row.append("" if one is None else ("yes" if one.ok else "no") + (" !" if wrong else ""))
        yield tuple(row)


_TITLES: Final = {
    "nvjitlink": "nvJitLink links",
    "driver": "The driver links",
    "load": "The driver loads what the producer's nvJitLink linked from",
}


def sections(measured: Sequence[Measurement]) -> list[Section]:
    """Return the tables for the report: one for each step and kind, and the findings."""
    result = []
    for step, title in _TITLES.items():
        for kind in ALL_KINDS:
            rows = tuple(table(measured, step, kind))
            consumers = tuple(dict.fromkeys(one.consumer for one in measured))
            result.append(section(f"skew-{step}-{kind}", f"{title} {kind}", ("made by", *consumers), rows, "releases"))
    rows = tuple(
        (one.rule, "allows what fails" if one.unsafe else "rejects what works", str(one)) for one in findings(measured)
    )
    note = "Measured with the libraries themselves; the drivers are emulated. ! marks a pair on which a rule is wrong."
    result.append(section("skew", "Rules against reality", ("rule", "how", "where"), rows, "findings", note=note))
    return [one for one in result if one.rows]
