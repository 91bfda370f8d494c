"""Run released versions of other libraries on emulated drivers, and write what each test of them did.

``nox -s finding-libraries [-- LIBRARY ...]`` calls it. Its results are docs/findings/libraries.json, which
docs/findings/index.md shows. `campaigns/findings/libraries.toml` lists the releases.
"""

import argparse
import collections
import datetime as dt
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent.parent
LIBRARIES: Final = Path(__file__).with_name("libraries.toml")
EXAMPLES: Final = ROOT / "docs" / "examples" / "findings" / "libraries"
RESULTS: Final = ROOT / "docs" / "findings" / "libraries.json"

#: The emulated drivers of every release; a backend is forced on the second one only.
DRIVERS: Final = ("12.9", "13.0", "13.2")
FORCED_ON: Final = "13.0"

OPTIONS: Final = (
    *("-p", "no:cacheprovider", "-q", "--tb=short", "--cudalink-processes=restarted"),
    *("--cudalink-checks=nvjitlink=strict", "--cudalink-provenance=wheels"),
    *("--cudalink-unsupported=skip", "--cudalink-require=none"),
)
SECONDS: Final = 300


class Environment(NamedTuple):
    """An environment: one release of a library on one toolkit."""

    library: str
    version: str
    toolkit: str
    requirements: tuple[str, ...]
    test: str
    backends: tuple[str, ...]
    forced: bool

    @property
    def name(self) -> str:
        """Name of its folder."""
        return f"{self.library}-{self.version}-{self.toolkit}"


class Run(NamedTuple):
    """A run of the tests of an environment."""

    environment: Environment
    driver: str
    backend: str


def environments(chosen: Sequence[str] = ()) -> Iterator[Environment]:
    """The environments of the libraries that were chosen, or of all."""
    described = tomllib.loads(LIBRARIES.read_text(encoding="utf-8"))
    toolkits = described.pop("toolkits")
    for library, about in described.items():
        if chosen and library not in chosen:
            continue
        for version, release in about["releases"].items():
            for toolkit in release["toolkits"]:
                major = toolkit.partition(".")[0]
                own = [one.format(version=version, major=major) for one in (*about["packages"], *release["packages"])]
                replaced = {re.split("[=<>]", one)[0] for one in own}
                base = [one for one in toolkits[toolkit] if re.split("[=<>]", one)[0] not in replaced]
                backends = tuple(about["backends"])
                forced = bool(release.get("forced", True))
                yield Environment(library, version, toolkit, (*base, *own), about["test"], backends, forced)


def runs(environment: Environment) -> Iterator[Run]:
    """The runs of an environment: each driver, and each forced backend on one of them."""
    for driver in DRIVERS:
        yield Run(environment, driver, "auto")
    for backend in environment.backends:
        if backend != "auto":
            yield Run(environment, FORCED_ON, backend)


def install(environment: Environment, folder: Path, wheel: str) -> str:
    """Make an environment, unless it is there; returns why it cannot be made, or nothing."""
    complete = folder / "complete"
    if complete.exists():
        return ""
    subprocess.run(["uv", "venv", "-q", "--clear", "--python", sys.executable, folder], check=True)
    command = ["uv", "pip", "install", "-q", "--python", folder / "bin" / "python", wheel, *environment.requirements]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"does not install: {' '.join(done.stderr.split())[:200]}"
    complete.touch()
    return ""


def perform(run: Run, folder: Path) -> dict[str, Any]:
    """Run the tests of an environment; returns what each of them did."""
    place = Path(tempfile.mkdtemp(prefix="libraries-"))
    shutil.copy(EXAMPLES / run.environment.test, place)
    (place / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    own = {name: value for name, value in os.environ.items() if not name.startswith(("CUDALINK_", "PYTEST_", "NOX"))}
    settings = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "VIRTUAL_ENV": str(folder), "TMPDIR": str(place)}
    site = next(folder.glob("lib/python*/site-packages"))
    wheels = [one for one in (site / "nvidia" / "cu13", site / "nvidia" / "cuda_nvcc") if one.is_dir()]
    # a toolkit of the system must not take part; the wheels' compiler is what old releases find by these variables alone  # noqa: E501
    toolkit = dict.fromkeys(("CUDA_HOME", "CUDA_PATH"), str(wheels[0] if wheels else place / "absent"))
    caches = {"CUPY_CACHE_DIR": str(place / "cupy"), "WARP_CACHE_PATH": str(place / "warp"), **toolkit}
    command = [
        *("pytest", *OPTIONS, f"--cudalink-driver={run.driver}", f"--force-backend={run.backend}"),
        *("--cudalink-report=record.jsonl", run.environment.test),
    ]
    try:
        env = {**own, **settings, **caches}
        done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
        printed = done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        printed = f"no end after {SECONDS} s"
    record = place / "record.jsonl"
    events = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    shutil.rmtree(place, ignore_errors=True)
    return judged(events, printed)


def judged(events: Sequence[Mapping[str, Any]], printed: str) -> dict[str, Any]:  # noqa: C901, PLR0912 (by answer)
    """What each test of a run did: its outcome, and why it did not pass."""
    violations: dict[str, list[str]] = collections.defaultdict(list)
    names = collections.Counter[str]()
    for event in events:
        if event["event"] == "violation" and event.get("option") == "name":
            names[event["nodeid"]] += 1
        elif event["event"] == "violation":
            violations[event["nodeid"] or ""].append(event["text"])
    crashes = {event["nodeid"]: event["last_events"] for event in events if event["event"] == "crash"}
    tests = {}
    for event in events:
        if event["event"] != "test" or event["outcome"] == "rerun":
            continue
        name = event["nodeid"].partition("::")[2]
        outcome, reason = event["outcome"], event["reason"]
        broken = violations.get(event["nodeid"], [])
        crash = crashes.get(event["nodeid"])
        if crash and any("cuLaunchKernel" in one for one in crash):
            outcome, reason = "unsupported", "cuLaunchKernel"  # the library ends its process for it
        elif event["nodeid"] in names and "cudalink: " in reason:
            outcome = "passed"  # but for the names, which are counted below
        elif "cudaErrorNotSupported" in reason:
            outcome, reason = "unsupported", "the CUDA runtime"
        elif broken:
            outcome, reason = "violation", broken[0].partition("; expected")[0]
        elif outcome == "unsupported":
            reason = ", ".join(sorted({one["function"] for one in event.get("refused", ())})) or reason
        tests[name] = outcome if outcome == "passed" else f"{outcome}: {_plain(reason)}"
    result: dict[str, Any] = {"tests": tests}
    if names:
        result["names"] = names.total()
    if "" in violations:
        result["outside"] = sorted({_plain(one.partition("; expected")[0]) for one in violations[""]})
    ends = [event for event in events if event["event"] == "end"]
    if any(end.get("failing") for end in ends):
        result["failing"] = [_plain(one) for one in ends[-1]["failing"]]
    if not tests:
        errors = re.findall(r"^E +(.*)", printed, re.MULTILINE) or printed.strip().splitlines()[-1:]
        result["not collected"] = _plain(errors[-1]) if errors else "no output"
    return result


def _plain(text: str) -> str:
    """A reason in one line, without addresses, numbers of handles and folders."""
    text = re.sub(r"0x[0-9a-f]+", "0x...", " ".join(text.split()))
    text = re.sub(r"(/[^\s/:'\"]+)+/", "", text)
    return re.sub(r"\b(handle|link state|state) \d+", r"\1 N", text)[:220]


def main() -> None:
    """Make the environments, run the tests in them, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("libraries", nargs="*", help="only these")
    parser.add_argument("--folder", type=Path, required=True, help="where the environments are, or are made")
    parser.add_argument("--wheel", required=True, help="the wheel of this project")
    given = parser.parse_args()
    for environment in environments(given.libraries):
        folder = given.folder / environment.name
        refused = install(environment, folder, given.wheel)
        results = []
        for run in runs(environment):
            about = {
                "environment": environment.name,
                "library": environment.library,
                "version": environment.version,
                "toolkit": environment.toolkit,
                "driver": run.driver,
                "backend": run.backend,
                "date": dt.datetime.now(dt.UTC).date().isoformat(),
            }
            if run.backend != "auto" and not environment.forced:
                result: dict[str, Any] = {"not run": "this release has no recipe that forces its backend"}
            else:
                result = {"not run": refused} if refused else perform(run, folder)
            results.append({**about, **result})
            print(json.dumps(results[-1], indent=1), flush=True)
        keep(environment, results)


def kept() -> list[dict[str, Any]]:
    """The results in the file."""
    return list(json.loads(RESULTS.read_text(encoding="utf-8"))["runs"]) if RESULTS.exists() else []


def keep(environment: Environment, results: Sequence[dict[str, Any]]) -> None:
    """Replace the results of an environment in the file, and remove those of environments that are not listed."""
    order = [one.name for one in environments()]
    others = [one for one in kept() if one["environment"] != environment.name and one["environment"] in order]
    merged = sorted([*others, *results], key=lambda one: order.index(one["environment"]))
    RESULTS.write_text(json.dumps({"runs": merged}, indent=1) + "\n", encoding="utf-8")


def blocks() -> dict[str, str]:
    """The generated part of the page."""
    return {"runs": table(kept())}


#: What a cell of the table says of a run, by the beginning of a test's entry.
WORDS: Final = {
    "passed": "passed",
    "violation": "violation",
    "unsupported": "stopped at the emulator",
    "crashed": "crash",
    "skipped": "not run",
    "": "refused or failed",
}


def verdict(run: Mapping[str, Any]) -> str:
    """What a cell of the table says about a run."""
    if "not run" in run:
        return "not run"
    if "not collected" in run or "" in run["tests"]:
        return "does not import"
    found = collections.Counter(WORDS.get(outcome.partition(":")[0], WORDS[""]) for outcome in run["tests"].values())
    return ", ".join(f"{found[word]} {word}" for word in WORDS.values() if found[word])


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """The table of the runs, and for each library the reasons of what did not pass."""
    columns = [(driver, "auto") for driver in DRIVERS] + [(FORCED_ON, "driver"), (FORCED_ON, "nvjitlink")]
    titles = [f"{driver}{'' if backend == 'auto' else f', {backend} forced'}" for driver, backend in columns]
    lines = [
        f"| library | release | toolkit | {' | '.join(titles)} | names |",
        f"|---|---|---|{'---|' * len(titles)}---|",
    ]
    cells = {(one["environment"], one["driver"], one["backend"]): one for one in results}
    for environment in environments():
        about = f"| {environment.library} | {environment.version} | {environment.toolkit} "
        own = [cells.get((environment.name, *column)) for column in columns]
        said = [
            verdict(run) if run else "not run" if column[1] in environment.backends else "no target"
            for run, column in zip(own, columns, strict=True)
        ]
        names = sum(run.get("names", 0) for run in own if run)
        lines.append(f"{about}| {' | '.join(said)} | {names or ''} |")
    lines.append("\n### Reasons\n")
    for library in dict.fromkeys(one["library"] for one in results):
        reasons: dict[str, list[str]] = {}
        for run in results:
            if run["library"] == library:
                for outcome in (*run.get("tests", {}).values(), run.get("not collected", ""), run.get("not run", "")):
                    if outcome not in ("", "passed"):
                        reasons.setdefault(outcome, []).append(run["version"])
        lines.append(f"**{library}**\n")
        lines += [f"- {', '.join(dict.fromkeys(seen))}: `{_cell(reason)}`" for reason, seen in reasons.items()]
        lines += ["- every test of every run passed"] * (not reasons)
        lines.append("")
    return "\n".join(lines)


def _cell(reason: str) -> str:
    return reason.replace("`", "'").replace("|", "/").strip()


if __name__ == "__main__":
    main()
