"""Measure actions in turn, summarize their times, and report them: printed, kept as JSON, and compared with limits.

A benchmark has this form::

    def main() -> int:
        options = measure.arguments("linker", rounds=60)
        report = measure.Report("linker", "create-link-close of two modules")
        times = measure.rounds({"ours": prepare_ours, "direct": prepare_direct}, options.rounds)
        for name, seconds in times.items():
            report.row("PTX", name, seconds)
        report.limit_ratio("PTX, ours to direct", times["ours"], times["direct"], 1.05)
        return report.finish(options.json)

`rounds` takes functions that prepare, untimed, and return the action that is timed. An action that measures itself,
such as one in a child process, returns `Seconds`. The actions take turns within each round and in going first, so that
a busy machine slows all of them.

The two quotients that `limit_ratio` compares with its limit, that of the least times and the median of those of the
rounds, are both disturbed by a busy machine, but seldom in the same direction; code that became slower raises both. The
smaller one counts. `limit_difference` does the same with differences. `limit` takes any figure.

``python benchmarks/measure.py .cudalink/bench/linker.json`` prints the figures of a run as a Markdown table.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

#: Folder of the JSON files, under the current directory.
FOLDER = Path(".cudalink/bench")

#: Distributions whose versions are named, if they are installed.
LIBRARIES = (
    *("pytest-cudalink", "pytest", "cuda-core", "cuda-bindings", "cuda-pathfinder", "nvidia-nvjitlink"),
    *("nvidia-cuda-nvrtc", "nvidia-nvjitlink-cu12", "nvidia-cuda-nvrtc-cu12"),
)

#: Returns the action to time; called untimed in every round.
Prepare = Callable[[], Callable[[], object]]


class Seconds(float):
    """The result of an action that has measured its own time."""

    __slots__ = ()


@dataclass(frozen=True)
class Summary:
    """The middle and the spread of some times, in seconds."""

    median: float
    low: float  # the first quartile
    high: float  # the third
    least: float
    rounds: int

    @classmethod
    def of(cls, times: Sequence[float]) -> Summary:
        """Summarize at least one time."""
        low, median, high = statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else [times[0]] * 3
        return cls(median, low, high, min(times), len(times))

    def __str__(self) -> str:
        return f"{_time(self.median)} ({_time(self.low)} to {_time(self.high)}, {self.rounds} rounds)"


def _time(seconds: float) -> str:
    if abs(seconds) >= 10:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.3f} ms" if abs(seconds) >= 1e-5 or not seconds else f"{seconds * 1e9:.2f} ns"


def _timed(prepare: Prepare) -> float:
    action = prepare()
    start = time.perf_counter()
    result = action()
    took = time.perf_counter() - start
    return float(result) if isinstance(result, Seconds) else took


def rounds(actions: Mapping[str, Prepare], count: int, *, warm_up: int = 1) -> dict[str, list[float]]:
    """Return the seconds of each action in each round; the actions take turns, also in going first.

    Garbage is collected before and after: a collection would hit one action, and leave cold caches to the next.

    `actions`: by name: prepares, and returns the action.
    `warm_up`: rounds before those that count.
    """
    times: dict[str, list[float]] = {name: [] for name in actions}
    names = list(actions)
    for _ in range(warm_up):
        for name in names:
            actions[name]()()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for number in range(count):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                times[name].append(_timed(actions[name]))
    finally:
        gc.enable()
        gc.unfreeze()
    return times


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the quotient of two columns of times that `rounds` returned; the module says which."""
    quotients = [a / b for a, b in zip(ours, theirs, strict=True)]
    return min(min(ours) / min(theirs), statistics.median(quotients))


def difference(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the difference of two columns of times that `rounds` returned, in seconds; the module says which."""
    return min(min(ours) - min(theirs), statistics.median(a - b for a, b in zip(ours, theirs, strict=True)))


def fitted_exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """Return b of the power law a * size ** b that fits best: 1 for linear growth."""
    return statistics.linear_regression([math.log(size) for size in sizes], [math.log(time) for time in times]).slope


def arguments(name: str, rounds: int, description: str = "") -> argparse.Namespace:
    """Read the command line of a benchmark, as `parser` describes it."""
    return parser(name, rounds, description).parse_args()


def parser(name: str, rounds: int, description: str = "") -> argparse.ArgumentParser:
    """Return the parser of a benchmark's command line: ``--json PATH`` and ``--rounds N``."""
    made = argparse.ArgumentParser(prog=f"benchmarks/{name}.py", description=description.partition("\n\n")[0])
    made.add_argument("--json", type=Path, default=FOLDER / f"{name}.json", help="file for the figures")
    made.add_argument("--rounds", type=int, default=rounds, help="how often each action is timed")
    return made


def environment() -> dict[str, Any]:
    """Return what the times depend on: device, driver, processor, Python, libraries, number of distributions."""
    installed: dict[str, str] = {}
    for dist in metadata.distributions():
        if dist.metadata["Name"]:
            installed.setdefault(dist.metadata["Name"].lower(), dist.version)  # the first on the path is imported
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "libraries": {name: installed[name] for name in LIBRARIES if name in installed},
        "distributions": len(installed),
    }


def device() -> str:
    """Name the device and its driver, or the emulated driver of this process."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no GPU, no driver"
    number, device, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256)
    driver.cuDriverGetVersion(ctypes.byref(number))
    version = f"{number.value // 1000}.{number.value % 1000 // 10}"
    if hasattr(driver, "cudalinkEmulatorVersion"):
        return f"no GPU, emulated driver {version}"
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return f"no GPU, driver {version}"
    driver.cuDeviceGetName(name, len(name), device)
    try:
        words = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").split()
        release = next(word for word in words if word.count(".") >= 1 and word.replace(".", "").isdigit())
    except (OSError, StopIteration):
        release = "release unknown"
    return f"{name.value.decode()}, driver {version} ({release})"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


class Report:
    """The figures of one benchmark: printed as they are reported, then written as JSON.

    `name`: the benchmark's.
    `title`: one line about what is measured.
    `device`: replaces the device of this process, for a benchmark that measures child processes on an emulated driver.
    """

    def __init__(self, name: str, title: str, *, device: str | None = None) -> None:
        self.name, self.title = name, title
        self.environment = environment()
        if device is not None:
            self.environment["device"] = device
        self._rows: list[dict[str, Any]] = []
        self._limits: list[dict[str, Any]] = []
        self._facts: dict[str, Any] = {}
        self._table = ""
        about = self.environment
        print(f"{title}\n  {about['device']}; {about['processor']}, {about['cores']} cores; Python {about['python']}")
        print("  " + ", ".join(f"{library} {version}" for library, version in about["libraries"].items()))
        print(f"  {about['distributions']} distributions are installed")

    def row(self, table: str, name: str, times: Sequence[float], against: Sequence[float] | None = None) -> Summary:
        """Print and keep the summary of some times under a heading; `against` adds the ratio of the medians."""
        summary = Summary.of(times)
        if table != self._table:
            self._table = table
            print(f"{table}\n  {'':40}{'median':>12}{'quartiles':>28}{'rounds':>8}")
        spread = f"{_time(summary.low)} to {_time(summary.high)}"
        quotient = None if against is None else summary.median / statistics.median(against)
        shown = "" if quotient is None else f"   x {quotient:.3f}"
        print(f"  {name:40}{_time(summary.median):>12}{spread:>28}{summary.rounds:>8}{shown}")
        self._rows.append({"table": table, "name": name, **asdict(summary), "ratio": quotient})
        return summary

    def fact(self, name: str, value: object, text: str = "") -> None:
        """Keep another figure in the JSON, and print `text`."""
        self._facts[name] = value
        if text:
            print(text)

    def limit(self, subject: str, figure: float, limit: float, unit: str = "") -> bool:
        """Print and keep a limit with its figure; return whether it holds."""
        ok = figure <= limit
        self._limits.append({"what": subject, "figure": figure, "limit": limit, "unit": unit, "ok": ok})
        space = " " if unit else ""
        print(f"{'ok  ' if ok else 'FAIL'} {subject}: {figure:.3f}{space}{unit} (limit {limit:g}{space}{unit})")
        return ok

    def limit_ratio(self, subject: str, ours: Sequence[float], theirs: Sequence[float], limit: float) -> bool:
        """Compare the quotient of two columns of `rounds` with a limit; return whether it holds."""
        return self.limit(f"{subject}, ratio", ratio(ours, theirs), limit)

    def limit_difference(self, subject: str, ours: Sequence[float], theirs: Sequence[float], limit_ms: float) -> bool:
        """Compare the difference of two columns of `rounds` with a limit in milliseconds; return whether it holds."""
        return self.limit(f"{subject}, difference", difference(ours, theirs) * 1e3, limit_ms, "ms")

    def finish(self, file: Path) -> int:
        """Write the JSON; return the exit code, 1 if a limit does not hold."""
        ok = all(limit["ok"] for limit in self._limits)
        content = {
            "name": self.name,
            "title": self.title,
            "ok": ok,
            "environment": self.environment,
            "rows": self._rows,
            "limits": self._limits,
            **self._facts,
        }
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        print(f"figures in {file}")
        sys.stdout.flush()
        return 0 if ok else 1


def markdown(content: Mapping[str, Any]) -> str:
    """Return the rows of a JSON file as a Markdown table, for the documentation."""
    about = content["environment"]
    lines = [f"{about['device']}; {about['processor']}, {about['cores']} cores; Python {about['python']}", ""]
    lines += ["| | | median | quartiles | ratio |", "|---|---|---|---|---|"]
    for row in content["rows"]:
        spread = f"{_time(row['low'])} to {_time(row['high'])}"
        quotient = "" if row["ratio"] is None else f"{row['ratio']:.3f}"
        lines.append(f"| {row['table']} | {row['name']} | {_time(row['median'])} | {spread} | {quotient} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
