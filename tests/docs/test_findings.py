"""The findings agree with their reproducers, with recordings and the atlas; ``nox -s findings`` runs their sessions."""

import json
import re
import tomllib
from collections import Counter
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from campaigns.findings import catalog
from pytest_cudalink.compat import atlas, known_bad
from pytest_cudalink.guardrails import can_link
from pytest_cudalink.versions import CudaVersion
from tests import sessions

ROOT = Path(__file__).parents[2]
FINDINGS = catalog.read()
IDS = [finding.id for finding in FINDINGS]
RELEASES = tomllib.loads((ROOT / "tools" / "sessions.toml").read_text(encoding="utf-8"))["findings"]


def test_each_finding_is_whole() -> None:
    """Each finding has a folder with its reproducer and its session, every text, and a release in one list alone."""
    assert len(set(IDS)) == len(IDS)
    assert {path.name for path in catalog.EXAMPLES.iterdir()} == {*IDS}
    for finding in FINDINGS:
        texts = (finding.determined, finding.expected, finding.seen, finding.upstream, finding.about, finding.fix)
        assert all((finding.files, finding.session, finding.bad, re.compile(finding.shows), *texts)), finding.id
        assert not set(finding.bad) & set(finding.good)
    assert catalog.environments() == set(RELEASES)


def test_releases_of_a_finding() -> None:
    """They are one range where all between them that ran have the fault; a later one without it has mended it."""
    fault = partial(catalog.Finding, "x", "x", "crash", *[""] * 10)
    runs = (catalog.Runs((), bad=("1.0", "1.10"), good=("1.9", "2.0")), catalog.Runs((), bad=("1.1",), good=()))
    finding = fault(runs=runs)
    assert (finding.ranges, finding.mended, finding.outcome) == ("1.0 to 1.1, 1.10", "2.0", "2.0")
    newest = fault(runs=(catalog.Runs((), bad=("1.1",), good=("1.0",)),))
    assert newest.outcome == f"not mended in 1.1 as of {catalog.as_of()}"


@pytest.mark.parametrize("finding", [finding for finding in FINDINGS if finding.runs], ids=lambda finding: finding.id)
def test_session_runs_the_command(finding: catalog.Finding) -> None:
    """The session has the command that runs with every release."""
    commands = [command for _, command, _ in sessions.environment_steps(finding.session)]
    assert any(finding.command.replace("{}", finding.bad[-1]) in command for command in commands), commands


def test_what_no_thread_names_has_a_text_to_send() -> None:
    """A finding without a thread has one, and so have two whose threads do not name the cause."""
    unfiled = {finding.id for finding in FINDINGS if finding.upstream.startswith("not found")}
    assert unfiled <= {finding.id for finding in FINDINGS if finding.issue}
    assert {f.id for f in FINDINGS if f.issue} - unfiled == {"cuda-core-begin-capture", "numba-cuda-lineinfo"}


@pytest.mark.parametrize("finding", [finding for finding in FINDINGS if finding.issue], ids=lambda finding: finding.id)
def test_text_to_send(finding: catalog.Finding, capsys: pytest.CaptureFixture[str]) -> None:
    """It has every part, the reproducer and output of the session, and no word that only this project uses."""
    assert catalog.main([finding.id]) == 0
    text = capsys.readouterr().out
    assert len(parts := re.split(r"^### .*", text, flags=re.MULTILINE)) == 9
    assert all(part.strip() for part in parts)
    steps = sessions.environment_steps(finding.session)
    commands = re.findall(r"^\$ (?!pip install)(.*)", text, re.MULTILINE)
    assert len(commands) == 1
    shown = [printed for _, command, printed in steps if command.endswith(commands[0]) and printed in text]
    assert any(shown[:1]) or finding.issue.log in text
    named = [file for file in finding.files if file.name in text.partition("```python")[0] + commands[0]]
    shown_files = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert shown_files == [file.read_text(encoding="utf-8") for file in named]
    assert any(all(f"'{package}'" in text for package in RELEASES[name]) for name, *_ in steps)
    words = r"\]\((?!https://)|bundled linker|guard rail|atlas|emulated driver|\{\w+\}|tests[./]|docs/"
    assert re.findall(words, re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)) == []


@pytest.mark.parametrize("finding", FINDINGS, ids=IDS)
def test_what_needs_no_driver_is_shown_without_one(finding: catalog.Finding) -> None:
    """A reproducer runs on an emulated driver only where the finding says why; no other uses this project."""
    files = re.findall(r"^python (\S+\.py)", finding.command, re.MULTILINE)
    sources = [(catalog.EXAMPLES / finding.id / name).read_text(encoding="utf-8") for name in files]
    assert ("cudalink" in finding.command) == bool(finding.driver)
    assert not any("cudalink" in source for source in sources)


STATED = [pytest.param(f.id, cells, id=f"{f.id}-{cells.step}-{cells.answer}") for f in FINDINGS for cells in f.cells]


@pytest.mark.parametrize(("name", "stated"), STATED)
def test_one_verdict(name: str, stated: catalog.Cells) -> None:
    """What a finding states of a link, the atlas, can-link and the known-bad entries of compat.json say, too."""
    entries = [entry for entry in known_bad.entries() if set(entry.versions) == {"nvjitlink", "nvrtc"}]
    (page,) = (finding.title + finding.about for finding in FINDINGS if finding.id == name)
    for made, read, arch in product(stated.made, stated.read, stated.archs):
        answer = atlas.load().ask(made, read, stated.kind, stated.step, arch)
        assert answer is not None
        assert f"{answer.status} {answer.code or ''}".strip() == stated.answer, (made, read, arch)
        library = "tileiras" if stated.step == "tileiras" else "nvjitlink"
        consumer = can_link.Consumer(library, CudaVersion.parse(read))
        (asked,) = can_link.questions(CudaVersion.parse(made), (consumer,), stated.kind, arch)
        said = can_link.reply(atlas.load(), asked)
        assert (said.severity == "note") is answer.works
        if stated.step == "real-run":
            assert [measured.status for _, measured in said.hardware] == [answer.status]
        met = known_bad.known_bad({"nvjitlink": read, "nvrtc": made}, arch=arch)
        crashes = any(entry in entries and stated.kind in entry.kinds for entry in met)
        assert crashes is (answer.status == "crashed")
        assert read in page
        assert made.partition(".")[0] in page


def test_the_cases_with_a_refused_input() -> None:
    """The counts and the rows of the finding on refused PTX are those of the recording."""
    file = ROOT / "campaigns" / "conformance" / "recorded" / "driver-580.159.04.json"
    cases = json.loads(file.read_text(encoding="utf-8"))["cases"]

    def codes(name: str, call: str) -> list[int]:
        return [case["code"] for case in cases[name] if case["call"].startswith(call)]

    ends = {name: codes(name, "cuLinkComplete")[-1] for name in cases if name.startswith("undefined/")}
    refused = {name for name in ends if 222 in codes(name, "cuLinkAdd")}
    others = Counter(ends[name] for name in ends.keys() - refused)
    assert len(ends) == 41
    assert Counter(ends[name] for name in refused) == {0: 6, 300: 1}
    assert others == {300: 33, 999: 1}
    (text,) = (finding.about for finding in FINDINGS if finding.id == "driver-failed-add")
    table = re.findall(r"^\| .*? \| `((?:undefined|link)/\S+)` \| ([\d, ]+) \| \W*(\d+)", text, re.MULTILINE)
    assert len(table) == 6
    for name, added, end in table:
        assert [str(code) for code in codes(name, "cuLinkAdd")] == added.split(", "), name
        assert codes(name, "cuLinkComplete") == [int(end)], name
