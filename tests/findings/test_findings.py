"""The pages of ``docs/findings``: complete, in agreement with their data, and run by ``nox -s findings``."""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from tests import sessions
from tests.findings import catalog, driver_answers

__all__ = ()

ROOT = Path(__file__).parent.parent.parent
FINDINGS = catalog.read()
IDS = [one.id for one in FINDINGS]
TEXTS = {one.id: one.page.read_text(encoding="utf-8") for one in FINDINGS}
RELEASES = tomllib.loads((ROOT / "matrices" / "sessions.toml").read_text(encoding="utf-8"))["findings"]
#: Kinds of faults in which memory is misused: their pages show what valgrind sees.
OF_MEMORY = ("lifetime", "crash")
KINDS = (*OF_MEMORY, "hang", "contract", "import", "false success", "message", "refused")


def sections(text: str) -> dict[str, str]:
    """The sections of a page, by title."""
    return {one.partition("\n")[0]: one for one in re.split(r"^## ", text, flags=re.MULTILINE)[1:]}


def runnable(session: str) -> str:
    """A session without its commands under valgrind, unless they were asked for: each takes a minute or more."""
    if os.environ.get("CUDALINK_VALGRIND") == "1":
        return session
    parts = re.split(r"^(?=\(\S+\) \$ )", session, flags=re.MULTILINE)
    return "".join(one for one in parts if "valgrind" not in one.partition("\n")[0])


@pytest.mark.skipif(sessions.ENVIRONMENTS is None, reason="needs the environments of the pages: nox -s findings")
@pytest.mark.parametrize("finding", FINDINGS, ids=IDS)
def test_session(finding: catalog.Finding, tmp_path: Path) -> None:
    """Every command of a page prints what the page shows under it, in a copy of its reproducer's folder."""
    folder = sessions.copy_of(catalog.EXAMPLES / finding.id, tmp_path / finding.id)
    root = Path(str(sessions.ENVIRONMENTS))

    sessions.check_in_environments(runnable(sessions.environment_blocks(TEXTS[finding.id])), root, folder)


def test_pages_and_data_agree() -> None:
    """Each finding has a page and a folder with its reproducer, and each of these belongs to a finding."""
    assert len(set(IDS)) == len(IDS)
    assert {one.stem for one in catalog.PAGES.glob("*.md")} == {*IDS, "index", "libraries"}
    assert {one.name for one in catalog.EXAMPLES.iterdir()} == {*IDS, "libraries"}


@pytest.mark.parametrize("finding", FINDINGS, ids=IDS)
def test_page(finding: catalog.Finding) -> None:
    """A page has the title, the releases from the data, and every section that its kind of fault needs."""
    text = TEXTS[finding.id]
    assert text.startswith(f"# {finding.title}\n")
    assert text.count(f"```{{finding}} {finding.id}\n```") == 1
    expected = ["Reproducer", "What pytest-cudalink prints", "The memory", "The contract", "Proposed fix"]
    if finding.kind not in OF_MEMORY:
        expected.remove("The memory")
    assert list(sections(text)) == expected
    assert re.search(r"^Measured 20\d\d-\d\d-\d\d by `", text, re.MULTILINE)


@pytest.mark.parametrize("finding", FINDINGS, ids=IDS)
def test_reproducer(finding: catalog.Finding) -> None:
    """The page shows every Python file of the folder, none longer than ten lines, and runs the reproducer's command."""
    text = TEXTS[finding.id]
    files = sorted(catalog.EXAMPLES.joinpath(finding.id).glob("*.py"))
    includes = {file: f"literalinclude}} ../examples/findings/{finding.id}/{file.name}\n" for file in files}
    assert [file for file in files if len(file.read_text(encoding="utf-8").splitlines()) > 10] == []
    assert [file for file in files if includes[file] not in text] == []
    assert sum(include in sections(text)["Reproducer"] for include in includes.values()) == 1
    if finding.runs:
        commands = [command for _, command, _ in sessions.environment_steps(sessions.environment_blocks(text))]
        assert any(finding.command.replace("{}", finding.bad[-1]) in one for one in commands), commands


@pytest.mark.parametrize("finding", FINDINGS, ids=IDS)
def test_data(finding: catalog.Finding) -> None:
    """A finding has a known kind, a pattern that compiles, and releases that stand in one list alone."""
    assert finding.kind in KINDS
    assert re.compile(finding.shows).pattern or not finding.runs
    assert finding.bad
    assert not set(finding.bad) & set(finding.good)
    assert finding.determined.endswith(".")


def test_environments() -> None:
    """The pages name each environment of the session, and no other."""
    assert catalog.environments(IDS) == set(RELEASES)


def test_ranges() -> None:
    """Releases are one range where all between them that ran have the fault; a later one without it has mended it."""
    runs = (catalog.Runs((), bad=("1.0", "1.10"), good=("1.9", "2.0")), catalog.Runs((), bad=("1.1",), good=()))
    finding = catalog.Finding("x", "x", "crash", "", "", "", "", runs)

    assert finding.ranges == "1.0 to 1.1, 1.10"
    assert (finding.mended, finding.outcome) == ("2.0", "2.0")
    assert [Version(one) for one in finding.bad] == sorted(map(Version, finding.bad))


def test_not_mended() -> None:
    """A fault of the newest release that ran is not mended, as of a date."""
    finding = catalog.Finding("x", "x", "crash", "", "", "", "", (catalog.Runs((), bad=("1.1",), good=("1.0",)),))

    assert finding.outcome == f"not mended in 1.1 as of {catalog.as_of()}"


def recorded() -> dict[str, list[dict[str, Any]]]:
    """The calls of each case that was recorded from a real driver."""
    file = ROOT / "tests" / "conformance" / "recorded" / "driver-580.159.04.json"
    return dict(json.loads(file.read_text(encoding="utf-8"))["cases"])


def test_crashes_of_the_driver() -> None:
    """The page on damaged inputs has the recorded answer of each kind and length, and how many crashed."""
    cases = recorded()
    damaged = [case for name, case in cases.items() if name.startswith("damage/")]
    crashed = [case for case in damaged if any("signal" in call for call in case)]
    text = TEXTS["driver-cut-inputs"]
    assert f"Of {len(damaged)} damaged inputs that were recorded, {len(crashed)} ended the process" in text

    for title, length in {
        "20 bytes": "20",
        "64 bytes": "64",
        "half": "half",
        "95 %": "most",
        "1 byte less": "byte",
    }.items():
        calls = [cases[f"damage/{kind}-cut-{length}"][1] for kind in ("cubin", "fatbin", "object", "library")]
        answers = [f"**{call['signal']}**" if "signal" in call else str(call["code"]) for call in calls]
        assert f"| {title} | {' | '.join(answers)} |" in text


def answered() -> dict[str, Any]:
    """What the driver on an H100 answered to each question of driver_answers.py."""
    content = json.loads((catalog.PAGES / "driver-answers.json").read_text(encoding="utf-8"))
    assert set(content["answers"]) <= set(driver_answers.QUESTIONS)
    return dict(content["answers"])


def code_of(answer: dict[str, Any], call: str) -> str:
    """The code that the first call of a name returned, or how the process ended in it."""
    code = next(one["code"] for one in answer["calls"] if one["call"] == call)
    return "**SIGSEGV**" if code is None and answer["end"] == "signal 11" else str(code)


def test_cut_inputs_on_a_gpu() -> None:
    """The page has the H100's answer to a cubin of each length, and to what never returned."""
    answers, text = answered(), TEXTS["driver-cut-inputs"]
    loads = ("cuModuleLoadData", "cuLibraryLoadData")
    for size in driver_answers.CUTS:
        codes = [code_of(answers[f"link a cubin cut at {size}"], "cuLinkAddData")]
        codes += [code_of(answers[f"{call} of a cubin cut at {size}"], call) for call in loads]
        length = f"{abs(size)} byte{'s' if abs(size) > 1 else ''}{' less' if size < 0 else ''}"
        assert f"| {length} | {' | '.join(codes)} |" in text
    assert code_of(answers["link a section that is larger than the file"], "cuLinkAddData") == "**SIGSEGV**"
    for question in ("link half a fatbin", "cuModuleLoadData of half a fatbin"):
        assert answers[question]["end"] == "still running after 20 s"


def test_failed_adds_on_a_gpu() -> None:
    """What the page says of the H100: undefined symbols end with 300, and PTX that is too new with an empty image."""
    answers = answered()
    for question in ("with CU_JIT_TARGET", "without CU_JIT_TARGET"):
        assert code_of(answers[f"an undefined symbol, {question}"], "cuLinkComplete") == "300"
    for question in ("a failed add, then complete", "PTX of 13.2", "PTX of 13.5"):
        calls = answers[question]["calls"]
        assert {one["code"] for one in calls if one["call"] == "cuLinkAddData"} == {222}
        assert [one["size"] for one in calls if one["call"] == "cuLinkComplete"] == [1432]
        assert code_of(answers[question], "cuModuleGetFunction") == "500"


def test_undefined_symbols_after_a_failed_add() -> None:
    """The page's rows are the recorded ones: an undefined symbol is refused, unless too new PTX was refused before."""
    cases = recorded()
    text = TEXTS["driver-failed-add"]
    last = [
        next(call["code"] for call in reversed(calls) if call["call"] == "cuLinkComplete")
        for name, calls in cases.items()
        if name.startswith("undefined/")
    ]
    counts = (
        f"Of the {len(last)} recorded cases of undefined symbols, {last.count(300)} end with 300; the {last.count(0)}"
    )
    assert counts in text
    assert last.count(999) == 1
    for name, row in {
        "link/undefined": "| PTX with an undefined symbol | 0 | 300 |",
        "undefined/after-failed-add": "| 222, 0 | **0**, an image of 4456 bytes |",
        "undefined/before-failed-add": "| 0, 222 | **0**, an image of 4456 bytes |",
        "undefined/after-ptx-error": "| 218, 0 | 999 |",
        "order/only-failed-adds": "| 222 | **0**, an image of 1432 bytes, without code |",
    }.items():
        complete = next(call for call in cases[name] if call["call"] == "cuLinkComplete")
        assert re.search(rf"\*?\*?{complete['code']}\b", row.split("|")[-2])
        assert not complete["size"] or f"{complete['size']} bytes" in row
        assert row in text
