"""Run the campaign and print what became of each kind of input; see the package.

    python -m campaigns.mutated_records [--inputs=100000] [--seconds=N] [--seed=N] [--processes=N] [--first=N]

Exit code 1: a traceback, a file that is not valid, or a cell or file that is not in the report.
"""

import argparse
import contextlib
import io
import json
import math
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import pytest_cudalink.report.merge
import pytest_cudalink.report.text  # noqa: F401
from campaigns.mutated_records.mutations import RECORDS, mutated
from pytest_cudalink import cli
from tests.report.samples import OBEYED

#: Inputs of one report; a multiple of ten, as the last digit of an input's number decides on its kind.
BATCH: Final = 100
_SOUND: Final = "the-sound-cell"
_FORMS: Final = ("html", "markdown")
_SUFFIXES: Final = {"record": ".jsonl", "saved": ".json", "cells": ".toml"}


def _command(*arguments: str) -> tuple[int, str]:
    """Run ``cudalink``; return its exit code and all that it printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = cli.main(arguments)
    return code, out.getvalue()


def try_inputs(seed: int, numbers: Sequence[int]) -> Counter[str]:
    """Use the inputs: in one report, and one command for each file of cells; return the counts.

    Raises Exception whatever a command raises, and AssertionError for an answer that is wrong.
    """
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch, _one_process():
        folder = Path(scratch, "r")
        folder.mkdir()
        (folder / "sound.jsonl").write_bytes(RECORDS[0].replace(b'"ctk-13.0"', f'"{_SOUND}"'.encode()))
        saved, records = [], []
        for number in numbers:
            kind, data = mutated(seed, number)
            path = folder / f"{number}{_SUFFIXES[kind]}"
            if number % 4:  # the others are records of one cell
                data = data.replace(b'"ctk-13.0"', f'"c{number}"'.encode())
            path.write_bytes(data)
            if kind == "cells":
                counts[f"files of cells: exit code {_check(path)}"] += 1
            else:
                (saved if kind == "saved" else records).append(path)
        if saved or records:
            counts.update(_report(folder, saved, records))
    return counts


def _check(path: Path) -> int:
    """Check a file of cells; return the exit code."""
    code, text = _command("matrix", "check", "--file", str(path))
    assert code in (0, 1, 2), code
    assert "Traceback" not in text, text
    return code


@contextlib.contextmanager
def _one_process() -> Iterator[None]:
    """Read records in this process: those of the campaign are enough."""
    module = sys.modules["pytest_cudalink.report.merge"]
    before, module._PARALLEL_FROM = module._PARALLEL_FROM, sys.maxsize
    try:
        yield
    finally:
        module._PARALLEL_FROM = before


@contextlib.contextmanager
def _without_rich() -> Iterator[None]:
    """Print reports plainly, which takes a tenth of the time."""
    module = sys.modules["pytest_cudalink.report.text"]
    before, module.find_spec = module.find_spec, lambda _: None
    try:
        yield
    finally:
        module.find_spec = before


def _report(folder: Path, saved: list[Path], records: list[Path]) -> Counter[str]:
    """Merge the records and saved reports, in every form; return how many are damaged."""
    written = {name: folder.parent / name for name in _FORMS}
    kept = folder.parent / "kept.json"
    arguments = [f"--{name}={path}" for name, path in written.items()]
    with _without_rich() if len(records) and int(records[0].stem) // BATCH % 5 else contextlib.nullcontext():
        code, text = _command("report", str(folder), *map(str, saved), f"--save={kept}", *arguments)
    assert code in (0, 1), text
    assert not OBEYED.search(text), OBEYED.search(text)
    for path in written.values():
        content = path.read_text(encoding="utf-8")
        assert not OBEYED.search(content), (path.name, OBEYED.search(content))
    assert written["html"].read_text(encoding="utf-8").count("<script") == 2

    report = json.loads(kept.read_bytes(), parse_constant=_refuse)
    cells = {cell["name"]: cell for cell in report["cells"]}
    assert len(cells[_SOUND]["outcomes"]) == 9
    assert not cells[_SOUND]["damage"]
    known = {file for cell in report["cells"] for file in cell["files"]}
    assert {str(path) for path in records} <= known, "a record is not in the report"
    told = " ".join([*report["damaged"], *(damage for cell in report["cells"] for damage in cell["damage"])])
    for path in saved:
        assert str(path) in told or code == 1, "a saved report is not in the report"
    if saved:
        code, text = _command("report", str(folder), "-q", f"--against={saved[0]}")
        assert code in (0, 1), text
        assert not OBEYED.search(text)
    damaged = {file for cell in report["cells"] if cell["damage"] for file in cell["files"]}
    return Counter(
        {
            "records: named as damaged": sum(str(path) in damaged for path in records),
            "records: cut, or of other content": sum(str(path) not in damaged for path in records),
            "saved reports: named as damaged": sum(str(path) in told for path in saved),
            "saved reports: of other content": sum(str(path) not in told for path in saved),
        }
    )


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def try_batch(seed: int, numbers: Sequence[int]) -> tuple[Counter[str], list[str]]:
    """Use the inputs together; if that fails, each alone, to find which one it is."""
    counts: Counter[str] = Counter()
    findings: list[tuple[int, str]] = []
    together = ""
    alone = [number for number in numbers if number % 10 == 9]
    others = [number for number in numbers if number % 10 != 9]
    try:
        counts += try_inputs(seed, others)
        others = []
    except Exception:  # noqa: BLE001 (each is a finding)
        together = traceback.format_exc()
    for number in (*alone, *others):
        try:
            counts += try_inputs(seed, [number])
        except Exception:  # noqa: BLE001
            findings.append((number, f"input {number} of seed {seed}:\n{_short(traceback.format_exc())}"))
    if others and not any(number in others for number, _ in findings):
        findings.append((numbers[0], f"inputs {numbers[0]} to {numbers[-1]} together:\n{together}"))
    return counts, [text for _, text in findings]


def _short(text: str) -> str:
    """Return a traceback without its middle, which may have a thousand frames."""
    lines = text.splitlines()
    return "\n".join([*lines[:20], "...", *lines[-20:]] if len(lines) > 40 else lines)


def campaign(inputs: int, seed: int, processes: int, first: int = 0, seconds: float = math.inf) -> bool:
    """Run the campaign, for so many seconds at most, and print its table; return whether it found nothing."""
    began = time.monotonic()
    batches = [range(at, min(at + BATCH, first + inputs)) for at in range(first, first + inputs, BATCH)]
    counts: Counter[str] = Counter()
    findings: list[str] = []
    tried = 0
    with ProcessPoolExecutor(processes) as pool:
        while batches and (not tried or time.monotonic() - began < seconds):
            wave, batches = batches[: 4 * processes], batches[4 * processes :]
            tried += sum(map(len, wave))
            for batch, bad in pool.map(partial(try_batch, seed), wave):
                counts.update(batch)
                findings += bad
                for text in bad:
                    print(text, flush=True)
    print(f"{tried} mutated inputs, seed {seed}, {time.monotonic() - began:.0f} s, {len(findings)} findings")
    for name, number in sorted(counts.items()):
        print(f"  {name}: {number}")
    return not findings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after N seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    return 0 if campaign(options.inputs, options.seed, options.processes, options.first, options.seconds) else 1


if __name__ == "__main__":
    sys.exit(main())
