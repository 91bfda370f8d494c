"""Measured compatibility: real libraries of two releases, and what is said where a rule and reality disagree."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_cudalink import cli, toolchains
from pytest_cudalink.can_link import Measurement, measuring

from ..report.samples import write

pytestmark = pytest.mark.xdist_group("skew")  # one worker: measured once

VERSIONS = ["12.9", "13.0"]


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> tuple[list[Measurement], Path]:
    """Every pair of 12.9 and 13.0, and the journal of it."""
    for version in VERSIONS:
        toolchains.add(version)
    journal = tmp_path_factory.mktemp("skew") / "journal.jsonl"
    return measuring.measure(VERSIONS, journal), journal


def answers(measured: list[Measurement], step: str, kind: str) -> dict[tuple[str, str], bool]:
    return {(one.producer, one.consumer): one.ok for one in measured if (one.step, one.kind) == (step, kind)}


@pytest.mark.slow
def test_what_links_with_what(measured) -> None:
    """Older artifacts link, newer ones do not; the driver links no LTO-IR; 12.9 silently takes cubins of 13.0."""
    found, _ = measured
    assert len(found) == 2 * 2 * 3 * 3
    forward = {("12.9", "12.9"): True, ("12.9", "13.0"): True, ("13.0", "12.9"): False, ("13.0", "13.0"): True}
    assert answers(found, "nvjitlink", "ptx") == forward
    assert answers(found, "nvjitlink", "ltoir") == forward
    assert answers(found, "nvjitlink", "cubin") == dict.fromkeys(forward, True)
    assert answers(found, "driver", "ptx") == forward
    assert not any(answers(found, "driver", "ltoir").values())
    refused = next(one for one in found if (one.step, one.kind, one.ok) == ("driver", "ptx", False))
    assert refused.answer.startswith("cuLinkAddData_v2: 222")


@pytest.mark.slow
def test_findings(measured) -> None:
    """The policy of cuda.core 1.2.2 allows what an older driver does not load, and no other rule allows what fails.

    What a rule rejects although it works is reported, with the rule and the pair.
    """
    found, _ = measured
    texts = {str(one): one for one in measuring.findings(found)}
    assert "artifact rejects what works: nvJitLink 12.9 links cubin of 13.0" in texts
    lto = "policy strict-major rejects what works: driver 13.0 loads what nvJitLink 12.9 linked from ltoir"
    assert lto in texts
    assert not any("newer-driver-ok" in text and "driver 13.0 loads" in text for text in texts)
    failing = "policy released allows what fails: driver 12.9 loads what nvJitLink 13.0 linked from"
    assert sorted(text for text, one in texts.items() if one.unsafe) == [
        f"{failing} {kind} (cuModuleLoadData: 209)" for kind in ("cubin", "ltoir", "ptx")
    ]


@pytest.mark.slow
def test_guard_rails_are_asked(measured) -> None:
    """The guard rails' rule for pipelines stands beside the artifact's own header."""
    found, _ = measured
    predicted = {
        (one.producer, one.consumer): one.predicted for one in found if (one.step, one.kind) == ("nvjitlink", "ltoir")
    }
    assert predicted["12.9", "13.0"] == {"artifact": True, "guard rails": False}
    assert predicted["13.0", "13.0"] == {"artifact": True, "guard rails": True}


@pytest.mark.slow
def test_resumes(measured, monkeypatch) -> None:
    """What the journal has is not measured again; what was cut off at its end is."""
    found, journal = measured
    lines = journal.read_text().splitlines(keepends=True)
    assert len(lines) == len(found)
    journal.write_text("".join(lines[:-1]) + lines[-1][:40])
    steps = []
    one = measuring._Bench.one
    monkeypatch.setattr(measuring._Bench, "one", lambda self, *step: steps.append(step) or one(self, *step))
    seen = []
    assert measuring.measure(VERSIONS, journal, lambda done, every: seen.append((done, every))) == found
    assert len(steps) == 1
    assert seen == [(35, 36), (36, 36)]
    with monkeypatch.context() as patch:
        patch.setattr(measuring, "run_job", lambda *_: pytest.fail("something was started"))
        assert measuring.measure([*VERSIONS, "13.0"], journal) == found
    monkeypatch.setattr(measuring, "package_hash", lambda: "another")
    steps.clear()
    assert [one.build for one in measuring.measure(["13.0"], journal)] == ["another"] * 9
    assert len(steps) == 9


@pytest.mark.slow
def test_command(measured, capsys, tmp_path, monkeypatch) -> None:
    """Tables for people, JSON for programs and for the report."""
    _, journal = measured
    measure = measuring.measure
    monkeypatch.setattr(measuring, "measure", lambda _, __, step, **given: measure(VERSIONS, journal, step, **given))
    words = ["can-link", "--measure"]
    assert cli.main(words) == 0
    shown = capsys.readouterr().out
    assert "nvJitLink links cubin\nmade by  12.9   13.0\n12.9     yes    yes\n13.0     yes !  yes\n" in shown
    assert "36 answers; 3 rules allow a link that fails, " in shown
    assert cli.main([*words, "--json"]) == 0
    (tmp_path / "skew.json").write_text(capsys.readouterr().out, encoding="utf-8")
    assert measuring.load(tmp_path / "skew.json") == measured[0]

    write(tmp_path / "records", "c", {"a": "passed"})
    arguments = [
        "report",
        str(tmp_path / "records"),
        "--skew",
        str(tmp_path / "skew.json"),
        "--html",
        str(tmp_path / "r.html"),
    ]
    assert cli.main([*arguments, "--markdown", str(tmp_path / "r.md")]) == 0
    assert "Rules against reality" in capsys.readouterr().out
    assert "Rules against reality" in (tmp_path / "r.html").read_text()
    assert "| 13.0 | yes ! | yes |" in (tmp_path / "r.md").read_text()


def test_a_rule_that_allows_too_much_comes_first() -> None:
    """Unsafe findings stand before those that are too strict."""
    strict = Measurement("12.9", "13.0", "ptx", "nvjitlink", ok=True, predicted={"a": False})
    unsafe = replace(strict, ok=False, answer="nvJitLinkAddData: 4", predicted={"b": True})
    first, second = measuring.findings([strict, unsafe])
    assert str(first) == "b allows what fails: nvJitLink 13.0 links ptx of 12.9 (nvJitLinkAddData: 4)"
    assert not second.unsafe


def test_without_toolchains(monkeypatch, tmp_path, capsys) -> None:
    """With nothing installed, the message names the command that installs."""
    monkeypatch.setenv("CUDALINK_CACHE", str(tmp_path))
    assert cli.main(["can-link", "--measure"]) == 2
    assert "cudalink toolchain add 12.9 13.0" in capsys.readouterr().err
    assert cli.main(["can-link", "12.4", "12.4", "--measure"]) == 2
    assert "run: cudalink toolchain add 12.4" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{}", "[]", "[]\n", "{\n}", '{"a": 1}\n', "no\n"])
def test_files_that_are_no_measurements(text, tmp_path, capsys) -> None:
    """Another file is refused in one line, by the report and by the measuring."""
    file = tmp_path / "s.json"
    file.write_text(text)
    write(tmp_path, "c", {"a": "passed"})
    assert cli.main(["report", str(tmp_path / "c.jsonl"), "--skew", str(file)]) == 2
    assert "s.json: not a file that `cudalink can-link --measure --json` wrote" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a.ptx", "13.0"], "PRODUCER is 'a.ptx'; --measure compiles its own sample; expected a CUDA release such as"),
        (["13.0"], "CONSUMER is missing; expected words such as 12.4 nvjitlink-13.2 ltoir"),
        (["13.0", "13.0", "fatbin-ptx"], "KIND is 'fatbin-ptx'; expected ptx, ltoir, cubin, linked-cubin"),
        (["13.0", "13.0", "--arch", "L4"], "--arch: "),
    ],
)
def test_words_that_cannot_be_measured(words, message, monkeypatch, tmp_path, capsys) -> None:
    """What is no release or no kind of the sample is refused in a sentence, before anything is measured."""
    monkeypatch.setenv("CUDALINK_CACHE", str(tmp_path))
    assert cli.main(["can-link", *words, "--measure"]) == 2
    assert f"cudalink can-link: {message}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "steps", "code"),
    [
        (["nvjitlink-13.0", "ptx"], ("nvjitlink",), 0),
        (["driver-13.0", "ptx"], ("driver", "load"), 1),
        (["driver-13.0", "linked-cubin"], ("driver", "load"), 0),
        (["13.0", "ptx"], measuring.STEPS, 1),
    ],
)
def test_one_pair(words, steps, code, monkeypatch, capsys) -> None:
    """Only the pair is measured, and the exit code is that of the step that the question is about."""
    given = {}

    def measure(producers, journal, _, **others):
        given.update(others, producers=producers, journal=journal)
        return [Measurement("12.9", "13.0", words[-1], step, ok=step != "driver", answer="refused") for step in steps]

    monkeypatch.setattr(measuring, "measure", measure)
    assert cli.main(["can-link", "nvrtc-12.9", *words, "--arch", "sm_75", "--measure"]) == code
    assert "The driver links" in capsys.readouterr().out or steps == ("nvjitlink",)
    assert given == {
        "producers": ["12.9"],
        "consumers": ["13.0"],
        "kinds": (words[-1],),
        "steps": steps,
        "arch": "sm_75",
        "journal": toolchains.cache_root() / "links.jsonl",
    }


@pytest.mark.slow
def test_a_crash_is_an_answer(measured, tmp_path) -> None:
    """A library that crashes costs one answer: here nvJitLink 13.0 on a cubin that was cut."""
    path = toolchains.library_path("13.0")
    sample = Path(__file__).parents[1] / "data" / "artifacts" / "13.0" / "main.cubin"
    (tmp_path / "cut.cubin").write_bytes(sample.read_bytes()[:200])
    job = {"step": "nvjitlink", "library": str(path), "suffix": "", "arch": "sm_90", "kind": "cubin"}
    answer = measuring.run_job({**job, "inputs": [str(tmp_path / "cut.cubin")], "image": os.devnull})
    assert not answer["ok"]
    assert json.dumps(answer)


ROW = {
    "producer": "12.9",
    "consumer": "13.0",
    "kind": "ptx",
    "step": "load",
    "ok": True,
    "predicted": {"artifact": False},
}


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"step": "jump"}, "line 1.step is 'jump'; expected one of nvjitlink, driver, load"),
        ({"kind": "sass"}, "line 1.kind is 'sass'; expected one of ptx, ltoir, cubin, linked-cubin"),
        ({"producer": ["12.9"]}, "line 1.producer is a list; expected a text"),
        ({"predicted": {"artifact": []}}, "line 1.predicted.artifact is a list; expected true or false"),
        ({"packages": "numpy"}, "line 1.packages is 'numpy'; expected a list"),
        ({"ok": None}, "line 1.ok is missing; expected true or false"),
    ],
)
def test_measurements_that_are_damaged(change, wrong, tmp_path, capsys) -> None:
    """The report names place and value; nothing else is reported."""
    write(tmp_path / "records", "c", {"a": "passed"})
    file = tmp_path / "skew.jsonl"
    for rows in ([{**ROW, **change}], [ROW, {**ROW, **change}]):
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert cli.main(["report", str(tmp_path / "records"), f"--skew={file}"]) == 2
        place = wrong.replace("line 1", f"line {len(rows)}")
        said = f"{file}: not a file that `cudalink can-link --measure --json` wrote ({place})"
        assert capsys.readouterr().err == f"cudalink report: {said}\n"


@pytest.mark.parametrize("content", [b"\xff", b"[" * 100_000, b"{\n" + b"[" * 100_000, b"{}", b'{\n"measurements": 1}'])
def test_a_file_that_skew_did_not_write(content, tmp_path, capsys) -> None:
    """Not text, nested too deeply, or without measurements: one sentence."""
    write(tmp_path / "records", "c", {"a": "passed"})
    file = tmp_path / "skew.json"
    file.write_bytes(content)
    assert cli.main(["report", str(tmp_path / "records"), f"--skew={file}"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"cudalink report: {file}")
    assert error.count("\n") == 1


def test_pairs_that_were_not_measured(tmp_path, capsys) -> None:
    """A file that is not complete has a column for every consumer, with empty places; names are no markup."""
    write(tmp_path / "records", "c", {"a": "passed"})
    file, page = tmp_path / "skew.jsonl", tmp_path / "r.md"
    rows = [ROW, {**ROW, "producer": "13.0", "consumer": "[red]13|\x1b"}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert cli.main(["report", str(tmp_path / "records"), f"--skew={file}", f"--markdown={page}"]) == 0
    assert "[red]13|\\x1b" in capsys.readouterr().out
    assert "| made by | 13.0 | \\[red\\]13\\|\\\\x1b |\n|---|---|---|\n| 12.9 | yes ! |  |\n" in page.read_text()
