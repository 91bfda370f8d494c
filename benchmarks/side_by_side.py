"""Measure everything that docs/explanation/side-by-side.md shows; the page's tables are made from the figures.

``measure --out FOLDER``
    Run the benchmarks on this machine, with and without its GPU; no network is used.
``collect FILE...``
    Put the figures of JSON files into the page's data, in place of older ones of the same benchmark and device.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parent
DATA = BENCHMARKS.parent / "docs" / "explanation" / "side-by-side.json"
#: What ``measure`` runs, the most telling first: name of the figures, benchmark, arguments, variables.
RUNS: tuple[tuple[str, ...], ...] = (
    ("linker", "linker", "--rounds=40"),
    ("linker-without-gpu", "linker", "--rounds=40", "--without-gpu"),
    ("stubs", "stubs"),
    ("guardrails", "guardrails", "--rounds=20"),
    ("startup", "startup", "--rounds=11"),
    ("emulator", "emulator", "--rounds=30"),
    ("empty_tests", "empty_tests", "--rounds=11"),
    ("jitlink_contract", "jitlink_contract", "--rounds=15"),
)
#: Takes as long as all the others, which leave it a processor.
BESIDE = ("report-many-cores", "report", "--time-limit=80")


def start(out: Path, run: tuple[str, ...]) -> subprocess.Popen[bytes]:
    """Start a benchmark that keeps its figures and its output in a folder."""
    name, benchmark, *arguments = run
    command = [sys.executable, str(BENCHMARKS / f"{benchmark}.py"), "--json", str(out / f"{name}.json"), *arguments]
    with (out / f"{name}.txt").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)


def finish(process: subprocess.Popen[bytes], deadline: float) -> int:
    """Wait for a benchmark, at most until a time; returns its exit code. Its own children end with it."""
    try:
        return process.wait(max(1.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.wait()


def take_measurements(out: Path, seconds: float) -> int:
    """Run the benchmarks, and write all figures to one file; returns the number of those that have none."""
    out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + seconds
    beside = start(out, BESIDE)
    for run in RUNS:
        began = time.monotonic()
        code = finish(start(out, run), deadline)
        print(f"{run[0]}: exit {code}, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{BESIDE[0]}: exit {finish(beside, deadline)}")
    figures: dict[str, Any] = {}
    for run in (*RUNS, BESIDE):
        file = out / f"{run[0]}.json"
        if file.is_file():
            figures[run[0]] = json.loads(file.read_text(encoding="utf-8"))
        else:
            print(f"{run[0]} has no figures:\n{(out / f'{run[0]}.txt').read_text(encoding='utf-8')[-1500:]}")
    (out / "side-by-side.json").write_text(json.dumps(figures), encoding="utf-8")
    return len(RUNS) + 1 - len(figures)


#: The pairs of rows to compare, by the figures' name: ours, theirs, and how the page calls both.
PAIRS: dict[str, tuple[tuple[str, str, str, str], ...]] = {
    "linker": (
        ("ours, nvjitlink", "libnvJitLink directly", "Linker on nvJitLink", "libnvJitLink, called directly"),
        ("ours, nvjitlink", "cuda.core", "Linker on nvJitLink", "cuda.core"),
        ("ours, nvjitlink, new inputs", "cuda.core, new inputs", "the same, new inputs", "cuda.core, new inputs"),
        ("ours, driver", "cuLink* directly", "Linker on the driver", "`cuLink*`, called directly"),
    ),
    "stubs": (
        ("stub", "direct", "our stub", "a direct call"),
        ("stub", "TileLang's stub", "our stub", "TileLang's stub"),
        ("stub", "Implib.so, linked statically", "our stub", "Implib.so, linked statically"),
        ("stub, full RELRO", "direct", "our stub, full RELRO", "a direct call"),
        ("stub, full RELRO", "TileLang's stub", "our stub, full RELRO", "TileLang's stub"),
        ("stub, full RELRO", "Implib.so, linked statically", "our stub, full RELRO", "Implib.so, linked statically"),
    ),
    "guardrails": (("guarded", "plain", "with guard rails", "cuda.pathfinder alone"),),
    "environments": (
        ("nox -s ctk-13.0", "python -m venv, pip install", "`nox -s ctk-13.0`", "pip, by hand"),
        ("nox -s ctk-13.0", "uv venv, uv pip install", "`nox -s ctk-13.0`", "uv, by hand"),
    ),
    "report": (
        ("cudalink report --html", "junit2html --report-matrix", "`cudalink report`", "junit2html, matrix"),
        (
            "cudalink report --html",
            "junitparser merge (XML, no page)",
            "`cudalink report`",
            "junitparser, which merges and makes no page",
        ),
    ),
    "startup": (
        ("with this plugin", "without a plugin", "this plugin", "no plugin"),
        ("with this plugin", "with an empty plugin", "this plugin", "an empty plugin"),
        *(
            ("this plugin", other, "this plugin", other)
            for other in ("pytest-xdist", "pytest-cov", "pytest-timeout", "pytest-html", "hypothesis")
        ),
    ),
    "empty_tests": (("with this plugin", "with an empty plugin", "this plugin", "an empty plugin"),),
}
PAIRS |= {"linker-without-gpu": PAIRS["linker"], "report-many-cores": PAIRS["report"]}
PAIRS["empty-tests-two-cores"] = PAIRS["empty_tests"]
#: The figures of each section of the page.
SECTIONS = {
    "links": ("linker", "linker-without-gpu"),
    "stubs": ("stubs",),
    "guard-rails": ("guardrails",),
    "environments": ("environments",),
    "report": ("report", "report-many-cores"),
    "start": ("startup", "empty_tests", "empty-tests-two-cores"),
}
UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
ENOUGH_ROUNDS = 3
AHEAD, EVEN, BEHIND = "ahead", "even", "behind"


@dataclass(frozen=True)
class Comparison:
    """Two rows that were measured in turn in one run."""

    case: str  # what was measured, and the names of both sides
    ours: str
    theirs: str
    our_row: Mapping[str, Any]  # as `measure.Report.row` keeps them
    their_row: Mapping[str, Any]

    @property
    def ratio(self) -> float:
        """Ours to theirs: the quotient of the medians."""
        return float(self.our_row["median"] / self.their_row["median"])

    @property
    def verdict(self) -> str:
        """Who is faster; even where the middle halves of the rounds overlap, or one round differs by a tenth."""
        if min(self.our_row["rounds"], self.their_row["rounds"]) < ENOUGH_ROUNDS and 0.9 < self.ratio < 1.1:
            return EVEN
        if self.our_row["low"] > self.their_row["high"]:
            return BEHIND
        return AHEAD if self.our_row["high"] < self.their_row["low"] else EVEN


def time_text(seconds: float) -> str:
    """Return a time with three digits and a unit."""
    unit, size = next(((unit, size) for unit, size in UNITS if seconds >= size), ("ns", 1e-9))
    value = seconds / size
    digits = max(0, 2 - len(str(int(value))) + 1)
    return f"{value:.{digits}f} {unit}"


def size_text(size: float) -> str:
    """Return a number of bytes in MB."""
    return f"{size / 1e6:.1f} MB" if size < 1e7 else f"{size / 1e6:,.0f} MB"


def comparisons(name: str, figures: Mapping[str, Any]) -> Iterator[Comparison]:
    """Yield the pairs of rows that some figures have, table by table."""
    tables: dict[str, dict[str, Any]] = {}
    for row in figures["rows"]:
        tables.setdefault(row["table"], {})[row["name"]] = row
    for table, rows in tables.items():
        for our_name, their_name, ours, theirs in PAIRS.get(name, ()):
            if our_name in rows and their_name in rows:
                yield Comparison(
                    table.replace("1e+08 of each", "of a hundred million"),
                    ours,
                    theirs,
                    rows[our_name],
                    rows[their_name],
                )


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def measured(figures: Mapping[str, Any]) -> str:
    """Return a sentence for each machine that names date, command and machine."""
    return " ".join(
        f"Measured {part['date']} by `{part['command']}` on {part['machine']}." for part in figures["parts"]
    )


def machine(environment: Mapping[str, Any], host: str) -> str:
    """Name the machine of some figures; `host` is the device that it has, used or not."""
    text = f"{environment['cores']} cores, Linux x86-64, Python {environment['python']}"
    if host.startswith("no GPU"):
        return f"{text}, without a GPU"
    name, _, driver = host.partition(", driver ")
    unused = "" if environment["device"] == host else ", which was not used"
    return f"an {name}, driver {driver.partition('(')[2].rstrip(')')}{unused}, {text}"


def comparison_table(name: str, figures: Mapping[str, Any]) -> str:
    """Return the table of all comparisons of some figures."""
    rows = [
        (
            comparison.case,
            comparison.ours,
            time_text(comparison.our_row["median"]),
            comparison.theirs,
            time_text(comparison.their_row["median"]),
            f"{comparison.ratio:.2f}",
            comparison.verdict,
        )
        for comparison in comparisons(name, figures)
    ]
    return markdown(("case", "ours", "median", "compared with", "median", "ours to theirs", "we are"), rows)


def report_table(figures: Mapping[str, Any]) -> str:
    """Return the table of memory and sizes of the report."""
    rows = []
    for size, programs in figures["memory"].items():
        for program, memory in programs.items():
            rows.append(
                (size, f"`{program.partition(' (')[0]}`", size_text(memory), size_text(figures["sizes"][size][program]))
            )
        rows += [
            (size, f"`{program.partition(' (')[0]}`", f"not done after {figures['time_limit']:g} s", "none")
            for program in figures["unfinished"].get(size, ())
        ]
    return markdown(("matrix", "program", "most memory", "size of the result"), rows)


def losses(data: Mapping[str, Any]) -> str:
    """Return the list of what others do faster, beyond the noise, from all figures."""
    return "\n".join(
        f"- {c.case}: {c.ours}, {time_text(c.our_row['median'])} to {time_text(c.their_row['median'])} of "
        f"{c.theirs} (ratio {c.ratio:.2f})"
        for names in SECTIONS.values()
        for name in names
        for c in (comparisons(name, data[name]) if name in data else ())
        if c.verdict == BEHIND
    )


def blocks() -> dict[str, str]:
    """Return the generated parts of the page, by name."""
    data = json.loads(DATA.read_text(encoding="utf-8"))
    commands: dict[tuple[str, str], list[str]] = {}
    for part in (part for figures in data.values() for part in figures["parts"]):
        commands.setdefault((part["date"], part["machine"]), []).append(f"`{part['command']}`")
    dated = "\n".join(
        f"Measured {date} by {', '.join(sorted(set(named)))} on {where}." for (date, where), named in commands.items()
    )
    result = {"losses": f"{losses(data)}\n\n{dated}"}
    for name, figures in data.items():
        if name in PAIRS:
            result[name] = f"{measured(figures)}\n\n{comparison_table(name, figures)}"
    for name in SECTIONS["report"]:
        result[name] += f"\n\n{report_table(data[name])}"
    return result


def found_host(content: Mapping[str, Any]) -> str:
    """Return the device of the machine on which ``measure`` ran."""
    devices = [entry["environment"]["device"] for entry in content.values() if "environment" in entry]
    return next((device for device in devices if not device.startswith("no GPU")), devices[0])


def collect(files: Sequence[Path], command: str) -> None:
    """Put figures into the data: of one benchmark, or those that ``measure`` wrote."""
    data = json.loads(DATA.read_text(encoding="utf-8")) if DATA.is_file() else {}
    for file in files:
        content = json.loads(file.read_text(encoding="utf-8"))
        several = content if "rows" not in content else {content["name"]: content}
        host = found_host(several)
        for name in [name for names in SECTIONS.values() for name in names if name in several]:
            figures = several[name]
            run = next((run for run in (*RUNS, BESIDE) if run[0] == name), (name, name))
            about = figures.pop("environment")
            figures["parts"] = [
                {
                    "date": about["date"][:10],
                    "command": command or f"python benchmarks/{' '.join((f'{run[1]}.py', *run[2:]))}",
                    "machine": machine(about, host),
                    "libraries": about["libraries"],
                }
            ]
            data[name] = figures
    DATA.write_text(json.dumps(data, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


def main() -> int:
    """Run the subcommand; return its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure", help="run the benchmarks")
    measuring.add_argument("--out", type=Path, default=Path(".cudalink/bench"), help="folder for the figures")
    measuring.add_argument("--seconds", type=float, default=600, help="stop after so many seconds")
    collecting = commands.add_parser("collect", help="put figures into the data of the page")
    collecting.add_argument("files", type=Path, nargs="+")
    collecting.add_argument("--command-line", default="", help="the command that measured, where it was another")
    options = parser.parse_args()
    if options.command == "measure":
        return take_measurements(options.out, options.seconds)
    collect(options.files, options.command_line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
