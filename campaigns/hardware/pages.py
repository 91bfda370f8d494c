"""The page of the machines, from their files of results in ``docs/hardware``.

``python -m campaigns.hardware.pages FILE...`` takes files of results over into that folder.
"""

import json
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from campaigns.hardware.stages import STAGES
from pytest_cudalink.base.words import counted

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "hardware"
_WORDS = {"passed": "Passed", "failed": "**Failed**", "not run": "**Not run**"}
#: What results say of a stage that was not started.
_NOT_STARTED = ["the stage", "it was not started"]
#: Failures that a page shows of each stage.
_SHOWN = 12


@cache
def _schema() -> Any:
    return json.loads((Path(__file__).parent / "schema.json").read_text(encoding="utf-8"))


def check(content: dict[str, Any]) -> None:
    """Raise a ValidationError if results are not as ``schema.json`` says."""
    import jsonschema  # Read the Docs has only the group `docs`

    jsonschema.validate(content, _schema())


def file_name(content: dict[str, Any]) -> str:
    """Return the name of a file of results without its suffix, such as ``580.159.04-nvidia-h100-80gb-hbm3``."""
    facts = content["facts"]
    device = re.sub(r"[^a-z0-9]+", "-", facts["device"]["name"].lower()).strip("-")
    return f"{facts['driver']['release']}-{device}"


def completed(content: dict[str, Any]) -> dict[str, Any]:
    """Return results that have every stage, in order: a stage that was not started has the outcome ``"not run"``."""
    there = {stage["name"]: stage for stage in content["stages"]}
    stages = []
    for stage in STAGES:
        missing = {"name": stage.name, "title": stage.title, "command": stage.command, "outcome": "not run"}
        nothing = {"seconds": 0, "passed": 0, "failures": [], "skipped": [_NOT_STARTED], "tables": []}
        stages.append(there.get(stage.name, missing | nothing))
    return {**content, "stages": stages}


def _started(stage: dict[str, Any]) -> bool:
    return _NOT_STARTED not in stage["skipped"]


def _cell(text: object) -> str:
    plain = re.sub(r"\s+", " ", str(text)).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([|*_`\[\]$\\])", r"\\\1", plain) or " "


def _cells(rows: list[list[str]]) -> list[list[str]]:
    return [[_cell(cell) for cell in row] for row in rows]


def _table(columns: list[str], rows: Sequence[Sequence[object]]) -> list[str]:
    lines = [columns, ["---"] * len(columns), *([str(cell) for cell in row] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def page(content: dict[str, Any]) -> str:
    """Return the sections of a file of results."""
    facts, stages = content["facts"], content["stages"]
    driver, device, machine = facts["driver"], facts["device"], facts["machine"]
    on = f"{device['name']}, driver {driver['release']} (CUDA {driver['cuda']})"
    measured = f"Measured {facts['date']} by `nox -s gpu` on {on}."
    ran = sum(stage["outcome"] == "passed" for stage in stages)
    shown = [
        ["driver", f"{driver['release']}, CUDA {driver['cuda']}, {driver['kind']}"],
        ["kernel module", driver["module"]],
        *([name, str(value)] for name, value in {**device, **machine}.items()),
        *_bundle(facts["bundle"]),
    ]
    rows = []
    for stage in stages:
        counts = stage["passed"], len(stage["failures"]), len(stage["skipped"]), stage["seconds"]
        title = f"[{stage['title']}](#{_label(content)}-{stage['name']})"
        rows.append([title, _WORDS[stage["outcome"]].lower(), *counts])
    lines = [
        f"({_label(content)})=",
        f"### {device['name']}, driver {driver['release']}",
        "",
        f"{ran} of {counted(len(stages), 'stage')} passed. pytest-cudalink {facts['version']}, {facts['date']}.",
        "",
        *_table(["fact", "value"], _cells(shown)),
        "",
        measured,
        "",
        "#### Stages",
        "",
        *_table(["stage", "outcome", "passed", "failed", "skipped", "seconds"], rows),
        "",
        measured,
    ]
    for stage in stages:
        lines += ["", f"({_label(content)}-{stage['name']})=", *_stage(stage, facts["date"], on)]
    packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items())
    lines += ["", "#### Packages", "", packages]
    return "\n".join(lines) + "\n"


def _label(content: dict[str, Any]) -> str:
    """Return the label of a machine's section, with which those of its stages begin."""
    return file_name(content).replace(".", "-")


def _bundle(bundle: dict[str, Any] | None) -> list[list[str]]:
    """Return the rows on the bundle that the packages come from."""
    if bundle is None:
        return [["packages", "from a package index"]]
    rows = [["packages", f"from a bundle of {bundle['bundle']}, without a network"]]
    if bundle["machine"]:
        rows.append(["of the machine", ", ".join(f"{name} {version}" for name, version in bundle["machine"].items())])
    return rows


def _stage(stage: dict[str, Any], date: str, on: str) -> list[str]:
    """Return the section of one stage."""
    lines = [f"#### {stage['title']}", ""]
    if not _started(stage):
        return [*lines, f"**Not run**: the stage was not started. To run it: `nox -s gpu -- --stage {stage['name']}`."]
    lines.append(
        f"{_WORDS[stage['outcome']]}: {stage['passed']} passed, {len(stage['failures'])} failed, "
        f"{len(stage['skipped'])} skipped, {stage['seconds']} s."
    )
    lines += ["", f"Measured {date} by `{stage['command']}` on {on}."]
    for table in stage["tables"]:
        lines += ["", f"{table['title']}:", "", *_table(table["columns"], _cells(table["rows"]))]
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
        ran = sum(stage["outcome"] == "passed" for stage in content["stages"])
        link = f"[{facts['device']['name']}, {facts['driver']['release']}](#{_label(content)})"
        rows.append([link, facts["driver"]["cuda"], f"{ran} of {len(content['stages'])}", facts["date"]])
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
    dates = [recording["facts"]["date"] for recording in (earlier, later)]
    if dates[0] != dates[1]:
        msg = f"the runs are of {dates[0]} and {dates[1]}; expected one day, which the page names; run the stages again"
        raise ValueError(msg)
    stages = [stage for recording in (earlier, later) for stage in recording["stages"] if _started(stage)]
    return completed({**later, "stages": stages})


def main() -> int:
    """Take over the files that are named."""
    taken: dict[str, dict[str, Any]] = {}
    for name in sys.argv[1:]:
        content = json.loads(Path(name).read_text(encoding="utf-8"))
        check(content)
        taken[file_name(content)] = completed(merged(taken.get(file_name(content)), content))
    for name, content in taken.items():
        (FOLDER / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        print(f"docs/hardware/{name}.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
