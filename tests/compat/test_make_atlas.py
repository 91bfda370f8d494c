"""Measuring the atlas: fresh answers are those of the file, a crash stays one answer, the file is deterministic."""

import json
import random
import tarfile
from pathlib import Path

import pytest

from pytest_cudalink import emulator, toolchains
from pytest_cudalink.base.tables import matrices_dir
from pytest_cudalink.compat import atlas
from pytest_cudalink.compat.atlas import AtlasAnswer
from tools import atlas_differences, atlas_on_gpu, make_atlas
from tools.make_atlas import Question

pytestmark = pytest.mark.xdist_group("atlas")  # one worker: measured once

RELEASES = ["12.9", "13.0"]
KINDS = ["ptx", "ltoir", "cubin", "linked-cubin"]
SAMPLES = Path(__file__).parents[1] / "data" / "artifacts"


@pytest.fixture(scope="module")
def fresh(tmp_path_factory) -> tuple[make_atlas.Answers, Path]:
    """Answers of 12.9 and 13.0 for one architecture, and the folder of inputs and images."""
    for release in RELEASES:
        toolchains.add(release)
    folder = tmp_path_factory.mktemp("atlas")
    return make_atlas.measure(RELEASES, folder, KINDS, ["sm_90"]), folder


def test_what_is_measured(fresh) -> None:
    """An executable cubin links to nothing, which counts as wrong although nvJitLink answers success."""
    answers, folder = fresh
    wrong = answers[Question("nvjitlink", "linked-cubin", "sm_90", "13.0", "13.0")]
    assert wrong == AtlasAnswer("wrong", text="the image does not have the kernel")
    assert answers[Question("driver", "linked-cubin", "sm_90", "13.0", "13.0")].code == 209
    assert answers[Question("load", "linked-cubin", "sm_90", "12.9", "13.0")].works
    image = folder / "nvjitlink" / "13.0" / "sm_90" / "12.9.ptx"
    assert not make_atlas.wrong_image(image, "sm_90")
    assert make_atlas.wrong_image(image, "sm_75") == "the image is for sm_90"
    other = {Question("nvjitlink", "ptx", "sm_90", "13.0", "12.9"): AtlasAnswer("works")}  # not what the file says
    (said,) = make_atlas.differences(make_atlas.answers_of(atlas.load()) | other, answers)
    assert said.startswith("nvjitlink 12.9: ptx of 13.0 for sm_90: works in the file, refused, nvJitLinkAddData: 4 ")


def test_what_tileiras_says(tmp_path) -> None:
    """Exit codes, signals, a cubin without the kernel; the text has places for the bytecode and the GPU."""
    program = tmp_path / "tileiras"
    program.write_text(
        "#!/bin/sh\ncase $2 in\n"
        "sm_90) echo \"tileiras: for the --gpu-name option: Cannot find option named 'sm_90'!\" >&2; exit 1;;\n"
        'sm_100) echo "error: invalid GPU architecture: 100" >&2; exit 2;;\n'
        'sm_103) echo "error: unsupported Tile IR bytecode version: 13.1"; exit 3;;\n'
        "sm_110) kill -SEGV $$;;\n"
        f"sm_120) cp {SAMPLES}/13.0/user.cubin $5;;\n*) cp {SAMPLES}/tile/add.cubin $5\nesac\n"
    )
    program.chmod(0o755)
    archs = ("sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121")
    said = make_atlas.compile_tile({"13.1": program}, archs)
    assert [(answer.status, answer.code, answer.name, answer.text) for answer in said.values()] == [
        ("refused", 1, "", "for the --gpu-name option: Cannot find option named 'sm_{gpu}'!"),
        ("refused", 2, "", "invalid GPU architecture: {gpu}"),
        ("refused", 3, "", "unsupported Tile IR bytecode version: {bytecode}"),
        ("crashed", 11, "SIGSEGV", ""),
        ("wrong", 0, "", "the image does not have the kernel"),
        ("wrong", 0, "", "the image is for sm_90"),
    ]
    programs = {"13.1": program, "13.9": program}
    said = make_atlas.compile_tile(programs, ["sm_90"], new="13.9")
    assert {(question.producer, question.consumer): answer.status for question, answer in said.items()} == {
        ("13.1", "13.9"): "refused", ("13.9", "13.1"): "not-made", ("13.9", "13.9"): "not-made",
    }  # fmt: skip


def test_what_nvrtc_says_of_headers(tmp_path, monkeypatch) -> None:
    """The code with the file and the text of the first error; headers of another major are not asked about."""
    toolchains.add("13.0")
    question = Question("nvrtc", "runtime-headers", "sm_90", "13.0", "13.0")
    (header := tmp_path / "cuda_runtime.h").write_text("#define RUNTIME\n")
    assert make_atlas._included(question, tmp_path) == AtlasAnswer("works")
    header.write_text("int one = ;\n")
    said = make_atlas._included(question, tmp_path)
    assert (said.call, said.code, said.name) == ("nvrtcCompileProgram", 6, "NVRTC_ERROR_COMPILATION")
    assert said.text.startswith("cuda_runtime.h: error: ")
    monkeypatch.setattr(make_atlas, "run_job", lambda _: {"ok": False, "call": "SIGSEGV", "code": -11, "log": ""})
    crashed = AtlasAnswer("crashed", code=11, name="SIGSEGV")
    assert [*make_atlas.compile_headers(["ptx", "runtime-headers"], RELEASES, tmp_path, new="13.0").values()] == [
        *(make_atlas.OTHER_MAJOR,) * 2, crashed,
    ]  # fmt: skip


def test_a_crash_is_one_answer(tmp_path) -> None:
    """A cut cubin ends nvJitLink 13.2 with a signal; the links before and after it answer as they do alone."""
    toolchains.add("13.2")
    library = str(toolchains.library_path("13.2"))
    (tmp_path / "cut.cubin").write_bytes((SAMPLES / "13.0" / "main.cubin").read_bytes()[:1000])
    good = [str(SAMPLES / "13.0" / f"{unit}.cubin") for unit in ("main", "user")]
    job = {"step": "nvjitlink", "library": library, "arch": "sm_90", "kind": "cubin", "image": str(tmp_path / "image")}
    jobs = [job | {"inputs": inputs} for inputs in (good, [str(tmp_path / "cut.cubin")])] * 2
    for each in (1, 3, 4):
        (tmp_path / "jobs").write_text(json.dumps(jobs))
        job_of_all = {"step": "batch", "library": library, "jobs": str(tmp_path / "jobs"), "each": each}
        first, crashed, second, last = make_atlas.run_job(job_of_all)["answers"]
        assert first == second == {"ok": True}
        assert crashed == last == {"ok": False, "crashed": True, "call": "SIGSEGV", "code": -11, "log": ""}


def test_an_exception_in_python_is_no_answer(tmp_path) -> None:
    """A job that raises in Python stops the measurement, with its traceback."""
    toolchains.add("13.0")
    bench = make_atlas._Bench(tmp_path, ["13.0"], {"ptx": ("sm_90",)}, None)
    with pytest.raises(RuntimeError, match="KeyError: 'library'"):
        bench._batch([{"step": "nvjitlink"}], "", each=1)


def test_the_file_is_deterministic() -> None:
    """The same answers in any order are the same text, which is the file's."""
    loaded = atlas.load()
    answers = list(make_atlas.answers_of(loaded).items())
    random.Random(1).shuffle(answers)
    content = make_atlas.content_of(dict(answers), loaded.wheels, loaded.measured, loaded.real)
    text = make_atlas.text_of(content)
    assert text == (matrices_dir() / "atlas.json").read_text(encoding="utf-8")
    assert make_atlas.answers_of(atlas.atlas_of(json.loads(text))) == dict(answers)


def test_command(fresh, tmp_path, capsys, monkeypatch) -> None:
    """What is measured is written to a file, compared with it, and shown; a part is not written."""
    monkeypatch.setattr(make_atlas, "measure", lambda *_, **__: dict(fresh[0]))
    monkeypatch.setattr(make_atlas, "compile_headers", lambda *_, **__: {})
    file = tmp_path / "atlas.json"
    words = [*RELEASES, "--file", str(file)]
    assert make_atlas.main(words) == 0
    assert json.loads(file.read_text())["releases"] == RELEASES
    assert make_atlas.main([*words, "--check"]) == 0
    file.write_text(file.read_text().replace('"status": "works"', '"status": "crashed"'))
    assert make_atlas.main([*words, "--check"]) == 1
    shown = capsys.readouterr().out
    assert "load 13.0: ptx of 13.0 for sm_90: crashed in the file, works now\n" in shown
    assert make_atlas.main([*words, "--show"]) == 0
    assert "nvjitlink 13.0: ptx of 13.0 for sm_90: works\n" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):  # a part of the questions does not replace the file
        make_atlas.main(["--short"])
    assert "--short would write a part of the file; give --check or --show with it" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"), [("nvjitlink-ltoir-across-majors", "ltoir"), ("nvjitlink-newer-input", "cubin")]
)
def test_reproducers(name, kind, capsys) -> None:
    """The session of a disagreement with the documentation shows it."""
    clashes = atlas_differences.disagreements(atlas.load())
    clash = next(clash for clash in clashes if (clash.statement.name, clash.grid.kind) == (name, kind))
    session, _, words = clash.reproducer.partition(" -- ")
    assert session == "nox -s atlas"
    assert make_atlas.main(words.split()) == 0
    question = Question(clash.grid.step, clash.grid.kind, clash.grid.arch, *clash.cells[0])
    (said,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith(str(question)))
    assert said.endswith(f": {clash.answer}")
    assert clash.answer.works is not clash.predicted


def test_what_a_gpu_answers_is_added(fresh, tmp_path, monkeypatch) -> None:
    """The prepared file has what a driver needs; the answers of an emulated one become steps of the atlas."""
    answers, folder = fresh
    wheels = {release: {"nvrtc": release} for release in RELEASES}
    measured = tmp_path / "atlas.json"
    content = make_atlas.content_of(answers, wheels, {"date": "2026-11-22"})
    measured.write_text(make_atlas.text_of(content), encoding="utf-8")
    atlas_on_gpu.prepare(folder, measured, tmp_path / "atlas.tar.xz")
    with tarfile.open(tmp_path / "atlas.tar.xz") as archive:
        assert {"questions.json", "inputs/12.9/sm_90/main.ptx"} <= set(archive.getnames())
    environment = emulator.emulation_for("13.0", lifetime="off").environment()
    run = make_atlas.run_job
    monkeypatch.setattr(atlas_on_gpu, "run_job", lambda job, given: run(job, {**environment, **given}))
    machine = {"driver": "580.1", "cuda": "13.0", "device": "one", "date": "2026-11-22", "command": "run"}
    monkeypatch.setattr(atlas_on_gpu, "_machine", lambda: machine)
    (tmp_path / "work").mkdir()
    loaded = atlas.atlas_of(content)
    result = atlas_on_gpu.run(tmp_path / "atlas.tar.xz", tmp_path / "work")
    both = atlas.atlas_of(make_atlas.with_real(loaded, result))
    assert [machine.driver for machine in both.real] == ["580.1"]
    assert both.ask("12.9", "13.0", "ptx", "real-load").works
    # an emulated driver runs no kernels
    assert both.ask("12.9", "13.0", "ptx", "real-run").call == "cuLaunchKernel"
    assert both.ask("12.9", "13.0", "ptx", "real-driver").call == "cuLaunchKernel"
    assert both.ask("13.0", "12.9", "ptx", "real-run").status == "not-made"
    assert both.ask("12.9", "13.0", "ltoir", "real-driver").code == 221
    raw = {(a["step"], a["kind"], a["producer"], a["consumer"]): a["said"] for a in result["answers"]}
    assert [answer["code"] for answer in raw["real-driver", "ltoir", "12.9", ""]] == [221]
    assert [answer.get("code", 0) for answer in raw["real-driver", "ptx", "12.9", ""]] == [0, 801]
    assert raw["real-run", "ptx", "13.0", "12.9"] == []
    # nothing differs from the emulated driver but the kernels that do not run
    assert make_atlas.emulator_differences(loaded) == []
    said = make_atlas.emulator_differences(both)
    assert len(said) == 4
    assert all("cuLaunchKernel: 801" in text and text.endswith("the emulated driver: works") for text in said)
    again = make_atlas.with_real(both, result)
    assert again == make_atlas.with_real(loaded, result)
