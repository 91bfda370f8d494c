"""Record this driver, and compare: ``python -m campaigns.hardware.recordings cases|programs|order|waits|...``.

The answers are compared with those of the recording in ``campaigns/conformance``, and with those of an emulated
driver of the same version, release and architecture on this machine. A difference that ``campaigns/conformance``
explains does not count as a failure.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from campaigns.conformance import compare
from campaigns.conformance import waits as waits_compare
from campaigns.conformance.programs import compare as programs_compare
from campaigns.conformance.programs import record as programs_record
from campaigns.driver import load
from campaigns.hardware.result import Result
from campaigns.hardware.waits import NO_TIME
from pytest_cudalink import emulator, probes
from pytest_cudalink.guardrails.driver import driver_release
from tests.emulator import test_fatbins, test_occupancy

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "campaigns" / "conformance" / "recorded"
#: Differences that a page lists; the rest is counted.
_SHOWN = 12
#: In the log of an emulated driver without the nvJitLink of an older release, which targets of before CUDA 13 need.
_NO_LINKER = "which was not found; get it with"
#: In the log of an emulated driver that refuses damaged code.
_MAY_CRASH = "on which a real driver may crash"
#: How many recorded programs are run again, of each part.
PROGRAMS = {"core": 80, "order": 40, "added": 160}


def _record(module: str, out: Path, *options: str, emulated: bool = False) -> Any:
    """Run a recording program on this driver, or on its emulation; return the content of its file."""
    environment = dict(os.environ)
    if emulated:
        arch = probes.device_arch() or "sm_90"
        planned = emulator.emulation_for(str(probes.driver_version()), release=driver_release(), device=arch)
        environment |= planned.environment()
    command = [sys.executable, "-P", "-m", module, str(out), *options]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        msg = f"{module} ended with exit code {done.returncode}; expected 0\n{(done.stdout + done.stderr)[-1500:]}"
        raise RuntimeError(msg)
    return load(out)


def cases(folder: Path, _seconds: float) -> Result:
    """Return how the cases of the linker are answered by this driver, by the recorded and by the emulated one."""
    result = Result()
    module = "campaigns.conformance.record"
    real = _record(module, folder / "real.json")["cases"]
    others = {
        "the recording": load(compare.RECORDED),
        "the emulated driver": _record(module, folder / "emulated.json", emulated=True),
    }
    calls = sum(map(len, real.values()))
    table = result.table("Cases and calls", "compared with", "driver", "cases", "calls", "equal cases", "unexplained")
    for name, other in others.items():
        equal, unexplained, lacking, damaged = 0, 0, set(), set()
        for case, rows in real.items():
            theirs = other["cases"].get(case, [])
            logs = " ".join(str(row.get("error")) for row in theirs)
            if _NO_LINKER in logs or _MAY_CRASH in logs:
                (lacking if _NO_LINKER in logs else damaged).add(case)
                continue
            differing = list(compare.differences(case, rows, theirs))
            equal += not differing
            new = [difference for difference in differing if compare.explained(difference) is None]
            unexplained += len(new)
            what = "; ".join(f"call {d.row} {d.field}: {d.recorded!r} here, {d.replayed!r} there" for d in new)
            result.check(f"{case}, compared with {name}: {what[:400]}", holds=not new)
        if damaged:
            result.skip(f"{name}: {len(damaged)} cases", "damaged code, on which the driver dies on some days only")
        if lacking:
            result.skip(f"{name}: {', '.join(sorted(lacking))}", "the toolchain that links for this target is not here")
        table.row(name, other["driver"], len(real) - len(lacking) - len(damaged), calls, equal, unexplained)
    return result


def programs(folder: Path, seconds: float) -> Result:
    """Return how random programs are answered by this driver, by the recorded and by the emulated one."""
    result = Result()
    goals = tomllib.loads((Path(programs_compare.__file__).parent / "goals.toml").read_text(encoding="utf-8"))
    earlier = programs_record.load(programs_compare.RECORDED / goals["recording"])
    chosen: list[int] = []
    for part, number in PROGRAMS.items():
        chosen += [p[0] for p in earlier["programs"] if programs_compare.part_of(p[1]) == part][:number]
    seeds = ",".join(f"{seed}:{seed + 1}" for seed in chosen)
    given = (f"--seeds={seeds}", f"--seconds={seconds}")
    recording = _record("campaigns.conformance.programs.record", folder / "real.json.xz", *given)
    mine = recording["programs"]
    table = result.table("Programs and calls", "compared with", "theme", "programs", "equal", "calls", "equal calls")

    def compared(name: str, other: dict[int, Any], machines: float = 0) -> None:
        results = [
            programs_compare.compare(*recorded, ours=other[recorded[0]]) for recorded in mine if recorded[0] in other
        ]
        for theme in PROGRAMS:
            tally = programs_compare.tally(results, theme)
            if not tally.results:
                result.skip(f"{theme}, compared with {name}", "none of its programs ran in this time, or is the same")
                continue
            share = f"{tally.share:.2f} %"
            table.row(name, theme, len(tally.results), f"{tally.program_share:.1f} %", tally.counted, share)
            least = machines or goals[theme]["calls"]
            sentence = f"{theme}, compared with {name}: {share} of the calls are equal; expected at least {least} %"
            result.check(sentence, holds=tally.share >= least)

    same = {program[0]: program for program in earlier["programs"]}
    kept = {r[0]: same[r[0]][3] for r in mine if r[0] in same and same[r[0]][2] == r[2]}
    if kept:
        compared(f"the recording of {earlier['driver']}", kept, goals["machines"])
    else:
        result.skip("the comparison with the recording", "it has none of these programs")
    compared("the emulated driver", programs_compare.replay(recording, mine, os.cpu_count() or 1))
    return result


def _alike(
    folder: Path, module: str, prefix: str, differing: Callable[[dict[str, Any], dict[str, Any]], list[str]]
) -> Result:
    """Return how this driver, the recorded one and the emulated one answer the questions of a recording program."""
    result = Result()
    real = _record(module, folder / "real.json")
    others = {"the emulated driver": _record(module, folder / "emulated.json", emulated=True)}
    for path in sorted(RECORDED.glob(f"{prefix}-*.json")):
        others[f"the recording of {path.stem.partition('-')[2]}"] = load(path)
    count = _answers(real)
    table = result.table("Answers", "compared with", "answers", "different")
    for name, other in others.items():
        different = differing(real, other)
        table.row(name, count, len(different))
        result.failures += [f"compared with {name}: {difference}" for difference in different]
        result.passed += count - len(different)
    return result


def _answers(recording: dict[str, Any]) -> int:
    """Count the answers of a recording of fatbins or of occupancy."""
    if "kernels" in recording:
        return sum(len(kernel["answers"]) + 1 for kernel in recording["kernels"])
    return sum(len(questions) for group in recording["answers"].values() for questions in group.values())


def fatbins(folder: Path, _seconds: float) -> Result:
    """Return which entries of fatbins are taken."""
    return _alike(folder, "campaigns.conformance.fatbin_record", "fatbins", test_fatbins.differing)


def occupancy(folder: Path, _seconds: float) -> Result:
    """Return what the occupancy functions answer."""
    return _alike(folder, "campaigns.conformance.occupancy_record", "occupancy", test_occupancy.differing)


def order(_folder: Path, _seconds: float) -> Result:
    """Return what host functions may call."""
    result = Result()
    table = result.table("Host functions", "question", "answers", "as recorded")
    refused = load(RECORDED / "host-calls-580.159.04.json")["answers"]["800"]
    environment = {**os.environ, "CUDA_DEVICE_MAX_CONNECTIONS": "32"}  # fewer queues hold up streams of their own
    run = [sys.executable, "-P", "-m", "campaigns.hardware.host_calls"]
    done = subprocess.run(run, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    inside = json.loads(done.stdout)
    alike = sum(inside.get(name) == ["800", "800"] for name in refused)
    table.row("functions that are refused in host functions", len(refused), alike)
    result.check(f"{len(refused) - alike} functions are not refused in host functions", holds=alike == len(refused))
    return result


def waits(folder: Path, seconds: float) -> Result:
    """Return which calls wait on this driver, beside the recordings and the table of the emulated driver."""
    result = Result()
    given = ("--jobs=4", "--times=1", "--loading=LAZY", f"--seconds={seconds}")
    real = _record("campaigns.hardware.waits", folder / "waits.json.xz", *given)
    others = {
        f"the recording of {name}": waits_compare.answers_in(record)
        for name, record in waits_compare.recorded().items()
    }
    table = result.table("Which calls wait", "compared with", "rows", "equal")
    for name, other in {"the table": waits_compare.said, **others}.items():
        tally = waits_compare.compare(real, other)
        table.row(name, tally.total, tally.equal)
        result.passed += tally.equal
        result.failures += [
            f"{' | '.join(filter(None, waits_compare.key(kind, row)))}: {mine}; {theirs} in {name}"
            for kind, row, _, mine, theirs in tally.differences
        ]
    if unasked := real["about"]["counts"][NO_TIME]:
        result.skip(f"{unasked} rows of what waits", f"the {seconds:g} s were over")
    return result


def _shortened(result: Result) -> Result:
    """Return a result with a limited list of failures, which ends with a count."""
    kinds = {failure.partition(",")[0].partition(":")[0] for failure in result.failures}
    if rest := result.failures[_SHOWN:]:
        result.failures = [*result.failures[:_SHOWN], f"{len(rest)} more, of {len(kinds)} kinds"]
    return result


def main() -> None:
    """Record, compare and print the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    chosen = {stage.__name__: stage for stage in (cases, programs, fatbins, occupancy, order, waits)}
    parser.add_argument("what", choices=chosen)
    parser.add_argument("--seconds", type=float, default=40)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _shortened(chosen[options.what](Path(folder), options.seconds)).write()


if __name__ == "__main__":
    main()
