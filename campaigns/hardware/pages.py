"""The page of the machines, from their files of results in ``docs/hardware``.

``python -m campaigns.hardware.pages FILE...`` takes files of results over into that folder.
"""

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from campaigns.hardware.stages import STAGES

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "hardware"
_WORDS = {"passed": "Passed", "failed": "**Failed**", "not run": "**Not run**"}
#: What results say of a stage that was not started.
_NOT_STARTED = ["the stage", "it was not started"]
#: Failures that a page shows of each stage.
_SHOWN = 12


def check(content: dict[str, Any]) -> None:
    """Raise a ValidationError if results are not as ``schema.json`` says."""
    import jsonschema  # Read the Docs has only the group `docs`

    jsonschema.validate(content, json.loads(Path(__file__).with_name("schema.json").read_text(encoding="utf-8")))


def file_name(content: dict[str, Any]) -> str:
    """Return the name of a file of results without its suffix, such as ``580.159.04-nvidia-h100-80gb-hbm3``."""
    facts = content["facts"]
    device = re.sub(r"[^a-z0-9]+", "-", facts["device"]["name"].lower()).strip("-")
    return f"{facts['driver']['release']}-{device}"


def completed(content: dict[str, Any]) -> dict[str, Any]:
    """Return results that have every stage, in order: a stage that was not started has the outcome ``"not run"``."""
    there = {stage["name"]: stage for stage in content["stages"]}
    nothing = {"outcome": "not run", "seconds": 0, "passed": 0, "failures": [], "skipped": [_NOT_STARTED], "tables": []}
    missing = [{"name": stage.name, "title": stage.title, "command": stage.command, **nothing} for stage in STAGES]
    return {**content, "stages": [there.get(stage["name"], stage) for stage in missing]}


def _started(stage: dict[str, Any]) -> bool:
    return _NOT_STARTED not in stage["skipped"]


def _passed(content: dict[str, Any]) -> str:
    """Return how many stages passed: "3 of 18"."""
    return f"{sum(stage['outcome'] == 'passed' for stage in content['stages'])} of {len(content['stages'])}"


def _cell(text: object) -> str:
    plain = re.sub(r"\s+", " ", str(text)).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([|*_`\[\]$\\])", r"\\\1", plain) or " "


def _table(columns: list[str], rows: Sequence[Sequence[object]], write: Callable[[object], str] = str) -> list[str]:
    lines = [columns, ["---"] * len(columns), *([write(cell) for cell in row] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def page(content: dict[str, Any]) -> str:
    """Return the sections of a file of results."""
    facts, stages = content["facts"], content["stages"]
    driver, device, machine = facts["driver"], facts["device"], facts["machine"]
    on = f"{device['name']}, driver {driver['release']} (CUDA {driver['cuda']})"
    measured = f"Measured {facts['date']} by `nox -s gpu` on {on}."
    shown = {
        "driver": f"{driver['release']}, CUDA {driver['cuda']}, {driver['kind']}",
        "kernel module": driver["module"],
        **device,
        **machine,
        **_bundle(facts["bundle"]),
    }
    label, rows = _label(content), []
    for stage in stages:
        counts = stage["passed"], len(stage["failures"]), len(stage["skipped"]), stage["seconds"]
        rows.append([f"[{stage['title']}](#{label}-{stage['name']})", _WORDS[stage["outcome"]].lower(), *counts])
    about = f"{_passed(content)} stage{'s' * (len(stages) != 1)} passed. pytest-cudalink {facts['version']}"
    lines = [f"({label})=", f"### {device['name']}, driver {driver['release']}", "", f"{about}, {facts['date']}.", ""]
    lines += [*_table(["fact", "value"], [*shown.items()], _cell), "", measured, "", "#### Stages", ""]
    lines += [*_table(["stage", "outcome", "passed", "failed", "skipped", "seconds"], rows), "", measured]
    for stage in stages:
        lines += ["", f"({label}-{stage['name']})=", *_stage(stage, facts["date"], on)]
    return "\n".join([*lines, "", "#### Packages", "", _versions(facts["packages"])]) + "\n"


def _versions(packages: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in packages.items())


def _label(content: dict[str, Any]) -> str:
    """Return the label of a machine's section, with which those of its stages begin."""
    return file_name(content).replace(".", "-")


def _bundle(bundle: dict[str, Any] | None) -> dict[str, str]:
    """Return the facts of the bundle that the packages come from."""
    if bundle is None:
        return {"packages": "from a package index"}
    facts = {"packages": f"from a bundle of {bundle['bundle']}, without a network"}
    return facts | ({"of the machine": _versions(bundle["machine"])} if bundle["machine"] else {})


def _stage(stage: dict[str, Any], date: str, on: str) -> list[str]:
    """Return the section of one stage."""
    lines = [f"#### {stage['title']}", ""]
    if not _started(stage):
        return [*lines, f"**Not run**: the stage was not started. To run it: `nox -s gpu -- --stage {stage['name']}`."]
    counts = f"{stage['passed']} passed, {len(stage['failures'])} failed, {len(stage['skipped'])} skipped"
    lines += [f"{_WORDS[stage['outcome']]}: {counts}, {stage['seconds']} s."]
    lines += ["", f"Measured {date} by `{stage['command']}` on {on}."]
    for table in stage["tables"]:
        lines += ["", f"{table['title']}:", "", *_table(table["columns"], table["rows"], _cell)]
    if stage["failures"]:
        lines += ["", "What failed:", ""]
        lines += [f"- {_cell(failure)}".rstrip() for failure in stage["failures"][:_SHOWN]]
        if len(stage["failures"]) > _SHOWN:
            lines.append(f"- {len(stage['failures']) - _SHOWN} more are in the JSON file")
    if stage["skipped"]:
        lines += ["", "What was skipped:", ""]
        lines += [f"- {_cell(what)}: {_cell(why)}" for what, why in stage["skipped"]]
    return lines


def listing(contents: list[dict[str, Any]]) -> str:
    """Return the list of the machines."""
    rows = []
    for content in contents:
        facts = content["facts"]
        link = f"[{facts['device']['name']}, {facts['driver']['release']}](#{_label(content)})"
        rows.append([link, facts["driver"]["cuda"], _passed(content), facts["date"]])
    table = _table(["device, driver", "CUDA", "stages passed", "date"], rows) if rows else ["No machine yet."]
    newest = max((content["facts"]["date"] for content in contents), default="")
    source = f"Measured {newest} by `nox -s gpu` on these machines; the column has the date of each."
    return "\n".join([*table, "", *([source] if contents else ())])


def recorded() -> list[dict[str, Any]]:
    """Return every file of results in ``docs/hardware``."""
    contents = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))]
    return [content for content in contents if "stages" in content]


def blocks() -> dict[str, str]:
    """Return the generated parts of the page."""
    return {"list": listing(recorded()), "machines": "\n".join(map(page, recorded()))}


def merged(earlier: dict[str, Any] | None, later: dict[str, Any]) -> dict[str, Any]:
    """Return the results of two runs on one machine and day: a stage that ran twice has its later result.

    The result has every stage, see `completed`.

    Raises ValueError if the runs are of different days.
    """
    if earlier is None:
        return later
    first, second = (recording["facts"]["date"] for recording in (earlier, later))
    if first != second:
        expected = "expected one day, which the page names; run the stages again"
        raise ValueError(f"the runs are of {first} and {second}; {expected}")
    stages = [stage for recording in (earlier, later) for stage in recording["stages"] if _started(stage)]
    return completed({**later, "stages": stages})


def main() -> None:
    """Take over the files that are named."""
    taken: dict[str, dict[str, Any]] = {}
    for name in sys.argv[1:]:
        content = json.loads(Path(name).read_text(encoding="utf-8"))
        check(content)
        taken[file_name(content)] = completed(merged(taken.get(file_name(content)), content))
    for name, content in taken.items():
        (FOLDER / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        print(f"docs/hardware/{name}.json")


if __name__ == "__main__":
    main()
