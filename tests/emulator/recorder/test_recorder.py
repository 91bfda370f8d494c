"""Asking a driver: the emulated one, libraries that die, and what a recording tells of its machine."""

import getpass
import json
import re
import socket
import sys
from pathlib import Path

import pytest

from pytest_cudalink import emulator
from pytest_cudalink.base.tables import read_table
from pytest_cudalink.cli import main
from pytest_cudalink.emulator.recorder import grade, record
from pytest_cudalink.emulator.recorder.asking import PRIVATE
from pytest_cudalink.emulator.recorder.execute import Interpreter, texts
from pytest_cudalink.emulator.recorder.record import GROUPS, RECORDED, DriverQuestion, questions, versions
from pytest_cudalink.versions import CudaVersion
from tests.compiled import compile_c

#: A driver with a device, as far as a description asks; what is between the lines differs from test to test.
STAND_IN = """
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>
{head}
int cuInit(unsigned f) {{ {init}; return 0; }}
int cuDriverGetVersion(int *v) {{ *v = {version}; return 0; }}
int cuDeviceGetCount(int *n) {{ *n = {devices}; return 0; }}
int cuDeviceGetName(char *s, int n, int d) {{ s[0] = 'X'; s[1] = 0; return 0; }}
int cuDeviceTotalMem_v2(size_t *n, int d) {{ *n = 1 << 20; return 0; }}
int cuDeviceGetAttribute(int *v, int k, int d) {{ *v = k; return k > 99; }}
int cuMemAlloc_v2(void *p, size_t n) {{ {allocate}; return 0; }}
"""
USUAL = {"head": "", "init": "", "devices": 1, "allocate": "", "version": 13000}


def stand_in(tmp_path: Path, **parts: object) -> Path:
    return compile_c(tmp_path / "libcuda.so.1", STAND_IN.format(**USUAL | parts))


def use_questions(monkeypatch: pytest.MonkeyPatch, *several: DriverQuestion) -> None:
    """Let these be all questions; those of the package have their versions before."""
    versions()
    for module in (record, grade):
        monkeypatch.setattr(module, "questions", lambda: several)


ALLOCATES = DriverQuestion(
    "samples", "allocates", [["cuInit", 0], ["cuMemAlloc_v2", ["o", "x"], 16], ["cuInit", 0]], "a page"
)
BEGINS = DriverQuestion("samples", "begins", [["cuInit", 0]], "a page")


def _functions(calls: list) -> set[str]:
    """The functions that calls name, also those of another process."""
    inner = {name for call in calls if call[0] == "!process" for name in _functions(call[1])}
    return inner | {call[0].partition("@")[0] for call in calls if call[0][0] != "!"}


def test_questions_name_their_sources() -> None:
    """Every must-pass question says which sample or page it is from, and the release that brought its functions.

    Values are those of its calls. The recorded programs load no code for one architecture, and wait for no gate.
    """
    symbols = read_table("emulator/functions.toml")["symbols"]
    since = {name: CudaVersion.parse(version) for version in symbols if version != "never" for name in symbols[version]}
    samples = [question for question in questions() if question.group != "programs"]
    assert len(samples) >= 40
    assert {question.group for question in questions()} == set(GROUPS)
    assert len({question.name for question in questions()}) == len(questions())
    sources = re.compile(r"cuda-samples v|CUDA Driver API |CUDA C\+\+ Programming Guide |NVML API, ")
    for sample in samples:
        assert sources.match(sample.source), sample
        assert all(int(number) < len(sample.calls) for number in sample.values), sample.name
        assert (sample.devices == 2) == (sample.group == "two"), sample.name
        if sample.group in ("samples", "two"):
            newest = max(since[name] for name in _functions(sample.calls))
            assert newest == CudaVersion.parse(sample.least_cuda or "12.0"), sample.name
    for program in (question for question in questions() if question.group == "programs"):
        assert set(re.findall(r'"!(\w+)"', json.dumps(program.calls))) <= set(texts()), program.name


def test_handles_of_a_stand_in_may_be_equal(monkeypatch, tmp_path) -> None:
    """A sample uses no handle that is gone, so that equal values are no reason to leave out its calls."""
    calls = [
        ["cuMemAlloc_v2", ["o", "h"], 16],
        ["cuMemAlloc_v2", ["o", "h"], 16],
        ["cuDeviceGetAttribute", ["o", "i"], 1, "$0"],
    ]
    same = "*(size_t *)p = 1"
    file = stand_in(tmp_path, allocate=same)
    for source, last in (("a page", [0, 1]), ("", None)):
        use_questions(monkeypatch, DriverQuestion("samples", "same", calls, source))
        assert record.record(file)["answers"]["samples"]["same"][2] == last


def test_what_a_program_gives_its_calls(monkeypatch, tmp_path) -> None:
    """A handle that is 0 has no offset, memory of the host is named, and a second thread has its own state."""
    calls = [
        ["cuMemAlloc_v2", ["o", "h"], 0],
        ["cuDeviceGetAttribute", ["o", "i"], "$0+64", 0],
        ["cuMemAlloc_v2", ["io", "H", "@4096"], 16],
        ["cuInit", 0],
        ["cuInit@1", 0],
        ["cuInit", 0],
    ]
    use_questions(monkeypatch, DriverQuestion("samples", "given", calls))
    init = "static __thread int calls; if (calls++) return 7"
    file = stand_in(tmp_path, init=init, allocate="if (!n) *(size_t *)p = 0")
    assert record.record(file)["answers"]["samples"]["given"] == [[0, 0], [0, 0], [0, "@4096"], [0], [0], [7]]
    interpreter = Interpreter(None)
    interpreter.values = [[None], [["", b"\1\2", False]]]  # of a call that failed, and of one that gave bytes
    assert interpreter.value_of(["^0", "^1"]) == [["B", bytes(64).hex()], ["B", "0102"]]


def test_a_question_that_dies_is_an_answer(monkeypatch, tmp_path) -> None:
    """The driver dies in one call: the question ends there, and the next one is asked."""
    use_questions(monkeypatch, ALLOCATES, BEGINS)

    recording = record.record(stand_in(tmp_path, allocate="abort()"))

    assert recording["answers"] == {"samples": {"allocates": [[0], ["signal", "SIGABRT"]], "begins": [[0]]}}
    assert recording["ended"] == {}
    attributes = {str(number): number for number in range(1, 100) if number not in PRIVATE}
    device = {"name": "X", "arch": "sm_7576", "memory": 1 << 20, "attributes": attributes}
    assert recording["devices"] == [device]
    graded = grade.grade(recording, grade.carried(recording))
    assert graded.failed == {"allocates": "cuMemAlloc_v2 ends the process with SIGABRT"}
    assert graded.passed == 1


@pytest.mark.parametrize(("version", "shown"), [(99_999_999, "99999.99"), (-1, "-1.99"), (0, "0.0")])
def test_a_version_that_is_not_one(monkeypatch, tmp_path, capsys, version: int, shown: str) -> None:
    """The answers are kept and graded all the same, and the number is shown as the driver says it."""
    use_questions(monkeypatch, BEGINS._replace(least_cuda="12.0"))
    file, output = stand_in(tmp_path, version=version), tmp_path / "driver.json"

    code = main(["driver", "record", f"--driver={file}", f"--output={output}"])

    assert json.loads(output.read_text(encoding="utf-8"))["answers"] == {"samples": {"begins": [[0]]}}
    shows = capsys.readouterr().out
    assert f"(CUDA {shown}) with X" in shows
    assert (code, "must pass: 1 of 1 sample" in shows) == (0, version != 0)


@pytest.mark.slow
def test_questions_that_the_time_does_not_allow(monkeypatch, tmp_path) -> None:
    """A slow driver is asked the first questions; the others count as not answered."""
    use_questions(monkeypatch, *(ALLOCATES._replace(name=str(number)) for number in range(40)))

    recording = record.record(stand_in(tmp_path, allocate="usleep(500000)"), seconds=2)

    answered = recording["answers"]["samples"]
    assert 0 < len(answered) < 40
    assert "0" in answered
    assert grade.grade(recording, grade.carried(recording)).lost == 40 - len(answered)


def test_a_library_whose_threads_answer(monkeypatch, tmp_path) -> None:
    """A stand-in may start a thread when it is opened, as one in Go does; a fork of it would wait for ever."""
    use_questions(monkeypatch, ALLOCATES)
    threads = """#include <pthread.h>
    static volatile int wanted, given;
    static void *serve(void *p) { for (;;) if (wanted) { wanted = 0; given = 1; } else usleep(100); return p; }
    __attribute__((constructor)) static void begin(void) { pthread_t t; pthread_create(&t, NULL, serve, NULL); }
    """
    waits = "wanted = 1; while (!given) usleep(100)"
    recording = record.record(stand_in(tmp_path, head=threads, allocate=waits))

    assert recording["answers"]["samples"]["allocates"][1] == [0, "-"]


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ({"init": "abort()"}, "cannot be asked: it ends its process with SIGABRT; name another library"),
        ({"init": "_exit(3)"}, "cannot be asked: it ends its process with 3; name another library"),
        ({"init": "pause()"}, "cannot be asked: it does not return; name another library"),
        (
            {"devices": 0, "init": 'if (system("touch report.json")) abort()'},
            "the driver shows no device: cuInit answers 0; a recording needs a device",
        ),
        (None, "cannot be asked"),
    ],
)
def test_a_library_that_cannot_be_asked(monkeypatch, tmp_path, capsys, made, why) -> None:
    """Whatever it does to its process, and whatever file it is, the command says it in one sentence.

    What it writes where it runs, as FakeGPU does its report, is not left in the user's folder.
    """
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    if made == {"init": "pause()"}:
        monkeypatch.setattr(record, "_DESCRIPTION", 0.2)
        monkeypatch.setattr(record, "_GRACE", 0.1)
    file = tmp_path / "libcuda.so.1"
    file.write_text("no library") if made is None else stand_in(tmp_path, **made)

    assert main(["driver", "record", f"--driver={file}"]) == 2

    assert why in capsys.readouterr().err
    assert [*Path.cwd().iterdir()] == []
    monkeypatch.setattr(record.sys, "platform", "win32")
    assert main(["driver", "record"]) == 2
    assert "drivers are recorded on Linux only, where each question runs in a fork" in capsys.readouterr().err


def test_nvml_alone_is_asked_about_nvml(monkeypatch, tmp_path) -> None:
    """A stand-in for NVML needs no libcuda."""
    shuts = DriverQuestion("nvml", "shuts", [["nvmlInit_v2"], ["nvmlShutdown"]], "a page")
    use_questions(monkeypatch, BEGINS, shuts)
    source = """
    int nvmlInit_v2(void) { return 0; }
    int nvmlSystemGetDriverVersion(char *t, unsigned n) { t[0] = '7'; t[1] = 0; return 0; }
    """

    recording = record.record(compile_c(tmp_path / "libnvidia-ml.so.1", source))

    assert recording["driver"] == "7"
    assert recording["answers"] == {"nvml": {"shuts": [[0], ["missing"]]}}
    assert grade.grade(recording, grade.carried(recording)).failed == {"shuts": "nvmlShutdown is missing"}


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([[0], [0, 7]], ""),
        ([[0], [0, 8]], "cuDeviceGet gives [8]; expected [7]"),
        ([[3]], "cuInit answers 3; expected 0"),
        ([[0], [101, "-"]], "cuDeviceGet answers 101; expected 0"),
        ([[0], None], "cuDeviceGet was not reached"),
        ([[0]], "cuDeviceGet was not reached"),
    ],
)
def test_a_sample_fails_at_its_first_wrong_answer(answers, why) -> None:
    question = DriverQuestion("samples", "q", [["cuInit", 0], ["cuDeviceGet", ["o", "i"], 0]], "a page", {"1": [0, 7]})
    assert grade.failure(question, answers) == why
    is_open = question._replace(values={"0": []})  # the documentation leaves it open
    assert grade.failure(is_open, [[217], [0, 7]]) == ""


def test_a_function_that_a_driver_is_too_old_for(monkeypatch) -> None:
    """What came with a later release than the driver's is no failure."""
    newer = BEGINS._replace(least_cuda="13.0")
    use_questions(monkeypatch, newer)
    told = {"driver": "", "cuda": "12.9", "answers": {"samples": {"begins": [["missing"]]}}}
    known = {"answers": {}}
    assert grade.grade(told, known) == grade.Grade()
    assert grade.grade({**told, "cuda": "13.0"}, known).failed == {"begins": "cuInit is missing"}


def test_the_recording_of_the_nearest_device() -> None:
    """A driver is compared with the recording of its device, else of its architecture, else with the first."""
    named = {
        ("NVIDIA H200", "sm_90"): "NVIDIA H200",
        ("NVIDIA GH200", "sm_90"): "NVIDIA H100 80GB HBM3",
        ("NVIDIA L4", "sm_89"): "NVIDIA H100 80GB HBM3",
    }
    for (name, arch), expected in named.items():
        assert grade.carried({"devices": [{"name": name, "arch": arch}]})["devices"][0]["name"] == expected
    assert grade.carried({"devices": []})["devices"][0]["name"] == "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_real_drivers_pass(path) -> None:
    """What the package carries of real drivers passes all that every driver must pass, and answers every program."""
    told = grade.read(path)
    graded = grade.grade(told, told)
    assert graded.failed == {}
    assert graded.passed >= 39
    assert graded.share == 100
    assert not {str(number) for number, _ in _private_attributes()} & set(told["devices"][0]["attributes"])
    assert len(told["answers"]["programs"]) == sum(question.group == "programs" for question in questions())


def test_another_recording_to_compare_with(capsys) -> None:
    """It takes the place of the one of the nearest device."""
    first, second = RECORDED[:2]
    assert main(["driver", "record", f"--answers={first}", f"--against={second}"]) == 0
    told = grade.read(second)
    name = told["devices"][0]["name"]
    assert f"\nequal to driver {told['driver']} (CUDA {told['cuda']}) with {name}" in capsys.readouterr().out


def test_the_grade_in_words(monkeypatch) -> None:
    """Share, functions that differ, questions without an answer, and how a process ended."""
    other = DriverQuestion("programs", "7", [["cuInit", 0], ["cuMemAlloc_v2", ["o", "x"], 16]])
    use_questions(monkeypatch, ALLOCATES, BEGINS, other)
    about = {"driver": "1.2", "cuda": "13.0", "devices": [{"name": "X", "arch": "sm_90"}] * 2, "seconds": 3}
    ended = {"samples": "ends its process with 1"}
    told = {**about, "ended": ended, "answers": {"samples": {"begins": [[0]]}, "programs": {"7": [[0], [2, "-"]]}}}
    known = {**about, "devices": [], "answers": {"programs": {"7": [[0], [0, "x"]]}}}

    assert grade.lines(told, known, grade.grade(told, known)) == [
        "driver 1.2 (CUDA 13.0) with 2 times X, sm_90",
        "asked: 2 questions in 3 s",
        "the driver ends its process with 1, asked for samples",
        "not answered: 1 question",
        "must pass: 1 of 1 sample",
        "equal to driver 1.2 (CUDA 13.0) with no device in 50.00 % of 2 answers",
        "  cuMemAlloc_v2: 1, such as 2 for 0",
    ]
    same = {**told, "answers": {"samples": {"begins": [[3]], "allocates": [[0], [0, "-"], [0]]}, **known["answers"]}}
    whole = grade.lines(same, known, grade.grade(same, known))
    assert whole[3:] == [
        "must pass: 1 of 2 samples",
        "  begins: cuInit answers 3; expected 0 (a page)",
        "equal to driver 1.2 (CUDA 13.0) with no device in 100 % of 2 answers",
    ]
    many = [grade.Difference(0, 0, f"cu{number}", "0", "1") for number in range(14)]
    several = grade.Grade(results=[grade.Result(0, "", counted=14, differences=many)])
    assert grade.lines(told, known, several)[-1] == "  and 2 more functions"
    dead = {**told, "answers": {"programs": {"7": [["signal", "SIGABRT"]]}}}
    last = "equal to driver 1.2 (CUDA 13.0) with no device in 0.00 % of 1 answers, and 1 not compared"
    assert last in grade.lines(dead, known, grade.grade(dead, known))


def test_answers_to_other_questions_are_left_out(tmp_path) -> None:
    """A sample whose calls changed since is not graded by its old answers; recorded programs never change."""
    (name, known), *_ = versions().items()
    file = tmp_path / "recording.json"
    about = {"driver": "", "cuda": "", "devices": [], "seconds": 0, "ended": {}}
    content = {**about, "samples": {name: known, "gone": "1"}, "answers": {"samples": {name: [[0]], "gone": [[0]]}}}
    file.write_text(json.dumps(content))
    assert grade.read(file)["answers"] == {"samples": {name: [[0]]}}
    content["samples"][name] = "old"
    file.write_text(json.dumps(content))
    assert grade.read(file)["answers"] == {"samples": {}}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"samples": {}, "answers": []}'])
def test_a_file_that_is_no_recording(tmp_path, capsys, text) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)

    assert main(["driver", "record", f"--answers={file}"]) == 2

    assert "is not a recording of a driver" in capsys.readouterr().err


def test_two_devices(monkeypatch) -> None:
    """Their questions need two devices, and are not asked of one; the emulated driver answers as two H200 did.

    It starts no kernel.
    """
    use_questions(monkeypatch, *(question for question in questions() if question.group == "two"))
    on_emulated(monkeypatch, "h200:2")

    told = record.record()
    graded = grade.grade(told, grade.carried(told))

    assert graded.failed == {"simpleP2P": "cuLaunchKernel answers 801; expected 0"}
    assert (graded.passed, graded.counted, graded.differences) == (6, 106, [])
    on_emulated(monkeypatch, "h200")
    assert record.record()["answers"] == {}


@pytest.mark.parametrize(("group", "passed", "counted", "computed"), [("samples", 27, 448, 9), ("nvml", 4, 31, 0)])
def test_each_answer_is_the_recorded_one(monkeypatch, group, passed, counted, computed) -> None:
    """All but the numbers that a kernel writes, which the share of all answers would hide."""
    use_questions(monkeypatch, *(question for question in questions() if question.group == group))
    on_emulated(monkeypatch, "h100")

    told = record.record()
    graded = grade.grade(told, grade.carried(told))

    assert (graded.passed, graded.counted, len(graded.differences)) == (passed, counted, computed)
    assert {difference.symbol for difference in graded.differences} <= {"cuMemcpyDtoH_v2", "cuMemcpy"}


def on_emulated(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """Let the processes that ask find an emulated driver."""
    for name, value in emulator.emulation_for("13.0", release="580.159.04", device=device).environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def emulated() -> dict:
    """The recording of an emulated driver with one device, as the recorded machine had."""
    with pytest.MonkeyPatch.context() as patch:
        on_emulated(patch, "h100")
        return record.record(seconds=600)


@pytest.mark.slow
def test_a_recording_does_not_name_its_machine(emulated) -> None:
    """It has no host, user, folder, UUID, address on a bus or serial number, and only known keys."""
    text = json.dumps(emulated)
    for private in (socket.gethostname(), getpass.getuser(), str(Path.cwd()), str(Path.home()), sys.prefix, "/tmp"):
        assert not re.search(rf"\b{re.escape(private)}\b", text), private
    assert not re.search(r"[0-9a-f]{8}-[0-9a-f]{4}-|GPU-|[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}", text)
    assert set(emulated) == {
        *("samples", "date", "machine", "driver", "cuda", "init", "devices", "seconds", "ended", "answers")
    }
    for device in emulated["devices"]:
        assert set(device) == {"name", "arch", "memory", "attributes"}
        named = {str(number) for number, _ in _private_attributes()}
        assert not named & set(device["attributes"])
    words = {word for word in _texts(emulated["answers"]) if not re.match(r"=\d|@\d", word)}
    known = {text for texts in read_table("emulator/errors.toml").values() for text in _texts(texts)}
    names = {device["name"] for device in emulated["devices"]}
    kernels = {"plain", "small", "wide", "scale", "new", "-", "?", "x", "f", "", "cuInit"}
    assert {word for word in words - known - names - kernels if not word.startswith("CUDA_")} <= set(
        emulated["samples"]
    )


def _private_attributes() -> list[tuple[int, str]]:
    """The attributes whose names say that they are a place: a bus, a domain, a device's identity, a memory node."""
    base = read_table("emulator/devices.toml")["base"]
    return [(number, name) for name, (number, _) in base.items() if "pci_" in name or name.endswith("numa_id")]


def _texts(value: object) -> set[str]:
    if isinstance(value, str):
        return {value}
    several = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {text for texts in several for text in _texts(texts)}
