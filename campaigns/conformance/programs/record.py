"""Record programs from the libcuda of this machine: ``python -m campaigns.conformance.programs.record OUT.json.xz``.

It needs nothing but a checkout. It stops at a limit with what it has.
"""

import argparse
import ctypes
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from campaigns.driver import save
from pytest_cudalink.emulator.recorder import record as recorder
from pytest_cudalink.emulator.recorder.asking import OpenedLibraries, described
from pytest_cudalink.emulator.recorder.execute import execute

from .gates import GatedInterpreter
from .generate import generate


def seeds_of(text: str) -> list[int]:
    """Seeds of ``A:B``, several of them joined by a comma."""
    seeds: list[int] = []
    for part in text.split(","):
        first, _, end = part.partition(":")
        seeds += range(int(first), int(end or int(first) + 1))
    return seeds


def load(path: Path) -> dict[str, Any]:
    """A recording: its driver, and of each program the seed, theme, calls and answers, with those of the package."""
    recording: dict[str, Any] = recorder.load(path)
    if name := recording.pop("and", ""):
        answers = recorder.load(recorder.PROGRAMS.with_name(name))["answers"]["programs"]
        more = [[*program, answers[str(program[0])]] for program in recorder.load(recorder.PROGRAMS)]
        recording["programs"] = sorted([*recording["programs"], *more], key=lambda row: int(row[0]))
    return recording


def _work(job: int, jobs: int, seeds: Sequence[int], devices: int, deadline: float, folder: str) -> None:
    """Record every `jobs`-th seed into a file of this process."""
    if devices > 1:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(job % devices)
    library = ctypes.CDLL("libcuda.so.1")
    with Path(folder, str(job)).open("w", encoding="utf-8") as file:
        for seed in seeds[job::jobs]:
            if time.monotonic() > deadline:
                break
            theme, program = generate(seed)
            answers = execute(program, GatedInterpreter(library))
            file.write(json.dumps([seed, theme, program, answers], separators=(",", ":")) + "\n")
            file.flush()


def _about() -> dict[str, Any]:
    """Driver, version and device."""
    try:
        about = described(OpenedLibraries("libcuda.so.1", "libnvidia-ml.so.1"))
    except OSError as error:
        return {"error": str(error)}
    device = about["devices"][0]
    return {"cuda": about["cuda"], "device": device["name"], "arch": device["arch"], "driver": about["driver"]}


def record(seeds: Sequence[int], processes: int = 1, seconds: float = 480, devices: int = 1) -> dict[str, Any]:
    """The recording of some seeds: those that were done in time."""
    os.environ["CUDA_CACHE_DISABLE"] = "1"
    forks = multiprocessing.get_context("fork")
    with forks.Pool(1) as pool:  # this process stays uninitialized
        about = pool.apply(_about)
    deadline = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        given = processes, seeds, devices, deadline, folder
        workers = [forks.Process(target=_work, args=(job, *given)) for job in range(processes)]
        for worker in workers:
            worker.start()
        for worker in workers:  # one that hangs in the driver must not take the recording with it
            worker.join(max(0, deadline + 30 - time.monotonic()))
            worker.kill()
        rows = []
        for line in [line for path in Path(folder).iterdir() for line in path.read_text("utf-8").splitlines()]:
            with suppress(ValueError):
                rows.append(json.loads(line))
    return {**about, "date": time.strftime("%Y-%m-%d", time.gmtime()), "programs": sorted(rows, key=lambda row: row[0])}


def main() -> int:
    """Record and write one file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", default="0:6000,100000:101000", help="A:B, joined by commas")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=480, help="stop after this time with what is there")
    parser.add_argument("--devices", type=int, default=1, help="spread the processes over this many devices")
    parser.add_argument("--add-to", type=Path, help="a recording of this driver, whose programs are kept")
    options = parser.parse_args()
    started = time.monotonic()
    earlier = load(options.add_to)["programs"] if options.add_to else []
    done = {program[0] for program in earlier}
    seeds = [seed for seed in seeds_of(options.seeds) if seed not in done]
    # when the time ends, every range of seeds has its share
    seeds.sort(key=lambda seed: (seed % 100000) * (6 if seed >= 100000 else 1))
    recording = record(seeds, options.processes, options.seconds, options.devices)
    took = time.monotonic() - started
    programs = recording["programs"]
    save(options.out, {**recording, "programs": sorted([*earlier, *programs], key=lambda row: int(row[0]))})
    for key in ("driver", "cuda", "device", "arch", "error"):
        if key in recording:
            print(f"{key}: {recording[key]}")
    print(f"{len(programs)} of {len(seeds)} programs in {took:.0f} s, {len(programs) / took:.1f} a second")
    print(f"{options.out}: {options.out.stat().st_size} bytes")
    return 0 if programs else 2


if __name__ == "__main__":
    sys.exit(main())
