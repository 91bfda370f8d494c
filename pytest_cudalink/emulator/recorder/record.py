"""Recording a driver: what it is, the questions, and what it answers to each."""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import json
import lzma
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...base import scratch
from ...base.regular_files import DATA, read_bounded
from ...base.tables import read_table
from .execute import Program

_CUDA, _NVML = "libcuda.so.1", "libnvidia-ml.so.1"
#: Seconds for the description, and for questions at work when the time is over.
_DESCRIPTION, _GRACE = 60, 25
_MOST_JOBS: Final = 8
_ROOT: Final = Path(__file__).parents[3]


class RecorderError(RuntimeError):
    """There is nothing to record; the message says why, and what to do."""


class Libraries(NamedTuple):
    """What is asked: two names or files that the dynamic loader opens; empty for a library that is not asked."""

    cuda: str
    nvml: str


def libraries_of(driver: Path | None) -> Libraries:
    """Return the libraries of this machine; of a stand-in the file, and NVML from its folder."""
    if driver is None:
        return Libraries(_CUDA, _NVML)
    path = driver.absolute()
    if path.name.startswith("libnvidia-ml"):
        return Libraries("", str(path))
    nvml = path.with_name(_NVML)
    return Libraries(str(path), str(nvml) if nvml.is_file() else "")


class _Asking:
    """A process that asks some questions, and its files."""

    def __init__(
        self, libraries: Libraries, share: Sequence[DriverQuestion], seconds: float, folder: str, name: str
    ) -> None:
        source, self._answers = Path(folder, f"{name}.in"), Path(folder, f"{name}.out")
        # samples use no handle that is gone
        asked = [(question.name, question.calls, not question.source) for question in share]
        source.write_text(json.dumps({**libraries._asdict(), "seconds": seconds, "questions": asked}))
        path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": path, "CUDA_CACHE_DISABLE": "1"}  # no compiled PTX from the disk
        if share and share[0].devices == 1:
            environment["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0] or "0"
        silent = subprocess.DEVNULL
        self._process = subprocess.Popen(  # noqa: S603 (ours)
            [sys.executable, "-m", f"{__package__}.asking", str(source), str(self._answers)],
            cwd=folder,  # a stand-in may write files where it runs
            env=environment,
            stdin=silent,
            stdout=silent,
            stderr=silent,
            start_new_session=True,
        )

    def done(self) -> bool:
        return self._process.poll() is not None

    def lines(self) -> list[Any]:
        """Return the answers so far; a line that is still being written does not count."""
        with contextlib.suppress(FileNotFoundError):
            text = self._answers.read_text()
            return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return []

    def end(self) -> str:
        """End the process and those that it started; return how it ended, as the end of a sentence."""
        if not self.done():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            return "does not return"
        code = self._process.returncode
        return f"ends its process with {signal.Signals(-code).name}" if code < 0 else f"ends its process with {code}"


def _ask(
    libraries: Libraries, questions: Sequence[DriverQuestion], seconds: float, say: Callable[[str], None]
) -> tuple[dict[str, Any], str]:
    """Return the answers to questions, by name, and how a process ended that left questions out."""
    end = time.monotonic() + seconds + _GRACE
    jobs = min(_MOST_JOBS, os.cpu_count() or 1, max(len(questions), 1))
    with tempfile.TemporaryDirectory(dir=scratch.root()) as folder:
        several = [_Asking(libraries, questions[job::jobs], seconds, folder, str(job)) for job in range(jobs)]
        try:
            while not all(process.done() for process in several) and time.monotonic() < end:
                time.sleep(0.05)
                if questions:
                    say(f"{sum(len(process.lines()) for process in several)} of {len(questions)} questions")
        finally:
            ends = [process.end() for process in several]
        lines = [line for process in several for line in process.lines()]
    strange = [ending for ending in ends if not ending.endswith(" 0")]
    return dict(lines), strange[0] if strange else ""


def record(
    driver: Path | None = None, seconds: float = 100, say: Callable[[str], None] = lambda _text: None
) -> dict[str, Any]:
    """Return what a driver answers: versions, devices, and the answers to all questions that the time allows.

    What the result says about the machine is its processor's architecture: addresses, UUIDs, free memory and places on
    a bus are left out.

    `driver`: a stand-in's ``libcuda.so.1`` or ``libnvidia-ml.so.1``; by default the driver of this machine.
    `seconds`: questions that were not asked by then are left out, those that show least.
    `say`: is given the state of the work.
    Raises RecorderError if there is no driver, or it has no device, or this is not Linux.
    """
    if not sys.platform.startswith("linux"):
        msg = f"drivers are recorded on Linux only, where each question runs in a fork; this is {sys.platform}: use WSL"
        raise RecorderError(msg)
    libraries, started = libraries_of(driver), time.monotonic()
    described, why = _ask(libraries, (), _DESCRIPTION - _GRACE, say)
    about = described.get("described")
    if about is None:
        fix = "install a driver, or name a library with --driver" if driver is None else "name another library"
        whose, why = driver or "the driver of this machine", described.get("error") or f"it {why}"
        raise RecorderError(f"{whose} cannot be asked: {why}; {fix}")
    if libraries.cuda and not about["devices"]:
        raise RecorderError(f"the driver shows no device: cuInit answers {about['init']}; a recording needs a device")
    groups: dict[str, list[DriverQuestion]] = {}
    for question in questions():
        here = libraries.nvml if question.group == "nvml" else libraries.cuda
        if here and question.devices <= max(len(about["devices"]), 1):
            groups.setdefault(question.group, []).append(question)
    answers, ended = {}, {}
    for group, asked in groups.items():
        left = max(seconds - (time.monotonic() - started), 1)
        answers[group], ended[group] = _ask(libraries, asked, left, say)
    return {
        "samples": versions(),
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "machine": platform.machine(),
        **about,
        "seconds": round(time.monotonic() - started),
        "ended": {group: how for group, how in ended.items() if how},
        "answers": answers,
    }


_DATA: Final = Path(__file__).parents[2] / "data" / "recorder"
#: Programs, each a list of seed, theme and calls; `tools/choose_questions.py` writes them and the recordings.
PROGRAMS: Final = _DATA / "programs.json.xz"
#: What `record` returned for drivers with a device.
RECORDED: Final = (_DATA / "driver-580.159.04-h100.json.xz", _DATA / "driver-580.159.04-h200.json.xz")
#: In the order in which they are asked.
GROUPS: Final = ("samples", "nvml", "two", "programs")


class DriverQuestion(NamedTuple):
    """A program that a driver is asked to run."""

    group: str  # one of `GROUPS`
    name: str  # of a recorded program its seed
    calls: Program  # as `execute` takes them
    source: str = ""  # the page or sample of NVIDIA's that a must-pass question is from; empty for recorded programs
    # the answer that the source promises for a call, by its number; of the other calls it is `[0, ...]`
    values: dict[str, list[Any]] = {}  # noqa: RUF012 (never changed)
    devices: int = 1  # how many it needs, and sees
    least_cuda: str = ""  # the first CUDA version that has its functions; empty if every driver has them


def load(path: Path) -> Any:
    """Return the content of a compressed file."""
    unpacked = lzma.LZMADecompressor(memlimit=DATA).decompress(read_bounded(path, DATA), DATA)
    return json.loads(unpacked)


@cache
def questions() -> tuple[DriverQuestion, ...]:
    """Return every question, those first that show most."""
    samples = []
    for sample in read_table("recorder/samples.toml")["sample"]:
        calls = [json.loads(line) for line in sample["calls"].splitlines() if line]
        samples.append(DriverQuestion(**{"group": "samples", **sample, "calls": calls}))
    programs = [DriverQuestion("programs", str(seed), calls) for seed, _, calls in load(PROGRAMS)]
    return tuple(sorted([*samples, *programs], key=lambda question: GROUPS.index(question.group)))


@cache
def versions() -> dict[str, str]:
    """Return what tells a sample, by name, from one that had other calls; a seed always means the same program."""
    return {
        question.name: hashlib.sha256(json.dumps(question.calls).encode()).hexdigest()[:8]
        for question in questions()
        if question.source
    }
