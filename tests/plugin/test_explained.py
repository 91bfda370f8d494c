"""How a failed phase is explained: the real check on hooks that are called by hand, without a nested pytest."""

import gc
import os
import sys
import weakref
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from pytest_cudalink import probes
from pytest_cudalink.artifacts import read_words
from pytest_cudalink.base.finding import Finding
from pytest_cudalink.emulator import preload
from pytest_cudalink.emulator.control import DriverState
from pytest_cudalink.linker.errors import LinkError
from pytest_cudalink.loader.jitlink.jitlink_calls import RefusedInput
from pytest_cudalink.plugin import settings
from pytest_cudalink.plugin.conditions import run_driver
from pytest_cudalink.plugin.records import LEDGER
from pytest_cudalink.plugin.run import Run
from pytest_cudalink.plugin.watch import CAUSES, causes
from pytest_cudalink.report.wording import cause_record
from pytest_cudalink.versions import CudaVersion
from tests.plugin.by_hand import Item, begun, reported

V12_9, V13_0 = CudaVersion(12, 9), CudaVersion(13, 0)
NEWER, FITS = {"result": 222, "image": ["ptx sm_90 13.0 9.0"], "for": 90}, {"image": ["ptx sm_90 12.0 8.0"]}
CUBIN = {"result": 209, "image": ["cubin sm_90 13.0 linked"], "for": 90}
NO_TABLES = "it asks the driver for undocumented tables, which an emulated one lacks"
ADVICE = (
    "A real driver performs what an emulated one refused here with CUDA_ERROR_NOT_SUPPORTED (801). "
    "--cudalink-unsupported=skip skips such tests."
)
ARTIFACTS = Path(__file__).parent.parent / "data" / "artifacts"


class Driver:
    """An emulated driver of CUDA 12.9, and the processes below, which have refused what a test says."""

    version, signs = V12_9, (Mock(side_effect=object),)

    def __init__(self) -> None:
        self.events: list[dict] = [{"call": "cuOld", "unsupported": True}]
        self.below: list[tuple[str, dict]] = []
        self.captures, self.invalid = 0, (0, "", False)

    @property
    def refusal_count(self) -> int:
        return sum("call" in event for event in self.events)

    def event_count(self) -> int:
        return len(self.events)

    def state(self) -> DriverState:
        return DriverState((), (), self.captures, 0, self.invalid)

    def refusals(self, start: int = 0) -> list[dict]:
        return [event for event in self.events[start:] if "call" in event]

    def refuse(self, call: str, note: str = "", **more: object) -> None:
        self.events += [{}, {"call": call, "result": 801, "for": 90, **({"note": note} if note else {}), **more}]

    def below_of(self, nodeid: str) -> list[dict]:
        events, self.below = [event for test, event in self.below if test == nodeid], []
        return events


def begin(run: Run, nodeid: str = "A") -> None:
    """Let a test begin."""
    run.config.hook.pytest_runtest_logstart(nodeid=nodeid, location=("f.py", 0, nodeid))


def watching(unsupported: str, captures: int = 0) -> Run:
    """A run that watches an emulated driver of CUDA 12.9, with captures that are open before the first test."""
    run = begun(unsupported=unsupported)
    run._emulated = driver = Driver()
    driver.captures = captures
    below = SimpleNamespace(refusals=driver.below_of, count=Mock(side_effect=object))
    run.config.pluginmanager.register(below, "cudalink-descendants")
    run.part(CAUSES).watch()
    begin(run)
    assert (below.count.called, driver.signs[0].called, run.part(CAUSES).has_signs) == (True, True, True)
    return run


@pytest.fixture
def run() -> Run:
    """A run that watches, and skips nothing."""
    return watching("report")


@pytest.fixture
def bare(monkeypatch) -> Run:
    """A run without an emulated driver, and no driver is there."""
    monkeypatch.setattr(preload, "emulated_driver", lambda: None)
    monkeypatch.setattr(preload, "driver_exists", lambda: False)
    monkeypatch.setattr(settings, "resolve", lambda config: config)
    monkeypatch.setattr(run_driver, "remedy", lambda *given: "REMEDY" if given[0] is given[1] else "")
    run = begun(unsupported="report")
    run.part(CAUSES)
    return run


def failed(run: Run, error: BaseException | None = None, **more) -> list[tuple[str, str]]:
    """Let a test fail in its call; gives the sections of its report."""
    given = {"when": "call", "outcome": "failed", **more}
    return reported(run, error=error or ValueError("x"), **given).sections


def why(run: Run, error: BaseException | None = None, **more) -> str:
    """Let a test fail in its call; gives the explanation, without what helps."""
    return "\n".join(text.partition("\nfix ")[0] for _, text in failed(run, error, **more))


class NamelessError(Exception):
    """An error that has no text."""

    def __str__(self) -> str:
        raise RuntimeError


# -- what an emulated driver refused

REFUSED_PTX = (
    "error  CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222): cuModuleLoadData of PTX ISA 9.0 for sm_90, made by CUDA 13.0\n"
    "why    a driver of CUDA 12.9 reads PTX up to ISA 8.8; CUDA 13.0 wrote 9.0"
)
REFUSED_CUBIN = "why    a driver of CUDA 12.9 loads cubins of toolkits up to CUDA 12; CUDA 13.0 made this one"
LOAD = "cuModuleLoadData"
KILLED = {"result": 999, "linker failed": "its process ended"}


@pytest.mark.parametrize(
    ("calls", "shown"),
    [
        ([(LOAD, NEWER)], REFUSED_PTX),
        ([(LOAD, NEWER), (LOAD, CUBIN)], REFUSED_CUBIN),
        ([(LOAD, NEWER), (LOAD, FITS)], REFUSED_PTX),
        ([("cuA", {"note": "no"}), (LOAD, NEWER)], REFUSED_PTX),
        ([(LOAD, NEWER), ("cuA", {"note": "no"})], f"cuA: no\n\n{ADVICE}"),
        ([("cuA", {"note": "no"}), ("cuB", {}), ("cuA", {"note": "no"}), (LOAD, FITS)], f"cuA: no\ncuB: \n\n{ADVICE}"),
        ([(LOAD, FITS)], ""),
        (
            [(LOAD, NEWER), (LOAD, KILLED)],
            "error  CUDA_ERROR_UNKNOWN (999): cuModuleLoadData\nwhy    its process ended",
        ),
        ([(LOAD, KILLED), ("cuA", {"note": "no"})], f"cuA: no\n\n{ADVICE}"),
        ([("cuLinkAddData_v2", CUBIN)], "why    a driver of CUDA 12.9 links code of CUDA 12.9 or older; "),
        ([("cuLinkAddData_v2", CUBIN)], "error  CUDA_ERROR_NO_BINARY_FOR_GPU (209): cuLinkAddData of a cubin "),
        ([(LOAD, {**NEWER, "version": 12080})], "why    a driver of CUDA 12.8 reads PTX up to ISA 8.7; "),
        ([(LOAD, {**NEWER, "version": 13000})], ""),
        ([(LOAD, {**FITS, "result": 209, "image": ["cubin sm_100 12.9 linked"]})], "; this device is sm_90"),
    ],
)
def test_the_last_refusal_that_explains(run, calls, shown: str) -> None:
    """Versions explain a failure, or calls that are not emulated, or nothing does."""
    for call, more in calls:
        run._emulated.refuse(call, **more)
    reason = why(run)
    assert shown in reason
    assert bool(reason) is bool(shown)


def test_each_phase_has_its_own_refusals(run) -> None:
    """Those of a phase that passed, of a test that was expected to fail, and of no test explain no other phase."""
    driver = run._emulated
    assert why(run) == ""  # what was refused before the run watched
    driver.refuse(LOAD, **NEWER)
    reported(run, "setup")
    assert why(run) == ""
    driver.refuse(LOAD, **NEWER)
    begin(run)
    assert why(run) == ""
    driver.refuse(LOAD, **NEWER)
    assert reported(run, "call", outcome="skipped", error=ValueError("x"), wasxfail="").sections == []
    driver.refuse(LOAD, **NEWER)
    assert reported(run, "call", outcome="failed").sections == []  # a check has failed it, and no error
    assert run.part(LEDGER).test.cause is None
    for name in ("cuD", "cuA", "cuC", "cuB", "cuA"):
        driver.refuse(name, unsupported=True)
    driver.refuse(LOAD, **NEWER)
    reported(run, "call")
    assert run.part(LEDGER).test.passed_over == ["cuA", "cuB", "cuC", "cuD"]
    driver.refuse(LOAD, **NEWER)
    assert why(run) == REFUSED_PTX
    driver.refuse(LOAD, **CUBIN)
    assert REFUSED_CUBIN in why(run)
    assert why(run) == ""


@pytest.mark.parametrize(("unsupported", "outcome"), [("skip", "skipped"), ("report", "failed")])
def test_a_failure_that_is_skipped(unsupported: str, outcome: str) -> None:
    """A refused call skips the test where that was asked for; a failure of versions stays."""
    run = watching(unsupported)
    for call in ("cuA", "cuB"):
        run._emulated.refuse(call, "no")
    report = reported(run, "call", outcome="failed", error=ValueError("x"))
    reason = "Skipped: cudalink: needs a real driver: cuA, cuB are not emulated"
    assert (report.outcome, report.longrepr) == (outcome, ("f.py", 1, reason) if unsupported == "skip" else None)
    run._emulated.refuse(LOAD, **NEWER)
    assert reported(run, "call", outcome="failed", error=ValueError("x")).outcome == "failed"


def test_processes_that_a_test_started(run) -> None:
    """What they were refused counts less than what the test itself was refused, and names them."""
    run._emulated.below = [("A", {"call": "cuBelow", "note": "no", "process": "child"})]
    run._emulated.refuse("cuA", "never")
    assert why(run) == f"cuBelow: no (in child)\ncuA: never\n\n{ADVICE}"
    assert run.part(LEDGER).test.cause.what == "CUDA_ERROR_NOT_SUPPORTED (801): cuA"
    run._emulated.below = [("B", {"call": "cuBelow", "note": "no", "process": "child"})]
    assert why(run) == ""
    run._emulated.below = [("A", {"call": LOAD, **CUBIN, "version": 12080, "process": "child"})]
    assert "why    a driver of CUDA 12.8 loads cubins" in why(run)
    run._emulated.below = [("", {"call": LOAD, **CUBIN, "process": "child"})]
    begin(run)
    assert run._emulated.below == []


def test_an_error_that_is_raised_again(run) -> None:
    """That of a fixture of a wider scope explains each test that it fails; the frames of old errors are let go."""
    run._emulated.refuse(LOAD, **NEWER)
    kept, gone = NamelessError(), NamelessError()
    assert why(run, gone) == REFUSED_PTX
    reference = weakref.ref(gone)
    for number in range(16):
        run._emulated.refuse("cuA", str(number))
        error = kept if number == 0 else ValueError("x")
        assert why(run, error) == f"cuA: {number}\n\n{ADVICE}"
    del gone, error
    assert why(run, kept) == f"cuA: 0\n\n{ADVICE}"
    assert why(run, NamelessError()) == ""
    gc.collect()
    assert reference() is not None
    begin(run)
    gc.collect()
    assert reference() is None
    assert why(run, kept) == f"cuA: 0\n\n{ADVICE}"
    run.part(CAUSES).forget_errors()  # between the trials of a test, whose objects the frames of an error keep alive
    reference = weakref.ref(kept)
    del kept
    gc.collect()
    assert reference() is None


OF_ANOTHER = Finding("error", "of another")


def test_a_test_that_is_run_again(run) -> None:
    """Each attempt has its own cause: a tear-down keeps that of the call, and a set-up that of another check."""
    run.part(LEDGER).test.cause = OF_ANOTHER
    reported(run, "setup")
    assert run.part(LEDGER).test.cause == OF_ANOTHER
    run.part(LEDGER).test.cause = None
    run._emulated.refuse("cuA", "no")
    failed(run)
    reported(run, "teardown")
    assert run.part(LEDGER).test.cause is not None
    reported(run, "setup")
    assert run.part(LEDGER).test.cause is None
    run.part(LEDGER).test.cause = OF_ANOTHER
    reported(run, "setup")
    assert run.part(LEDGER).test.cause == OF_ANOTHER


# -- the CUDA runtime

SAYS = "cudaErrorNotSupported: operation not supported"


@pytest.mark.parametrize(
    ("text", "explained"),
    [
        (SAYS, True),
        ("CUDA error: operation not supported\nmore", True),
        ("first\n CUDA: operation not supported", True),
        ("Operation not supported", False),
        ("error 801", False),
    ],
)
def test_what_the_runtime_says(run, bare, text: str, explained: bool) -> None:
    """Its words are enough on an emulated driver, also in an error that another one comes from."""
    outer = ImportError("no device")
    outer.__cause__ = RuntimeError(text)
    shown = f"the CUDA runtime: {NO_TABLES}\n\n{ADVICE}" if explained else ""
    assert why(run, RuntimeError(text)) == why(run, outer) == shown
    assert why(bare, RuntimeError(text)) == ""


@pytest.mark.parametrize(
    ("text", "explained"),
    [
        ("RMM failure at: x.cpp:26: a resource requires CUDA 13.0 or higher", True),
        ("this needs CUDA 12.9", True),
        ("a resource requires CUDA 13.1 or higher", False),
        ("requires CUDA 13 or a stream", False),
        ("a driver without a version: requires CUDA 1.0", False),
        ("a driver without a version: requires CUDA 0.1", False),
    ],
)
def test_a_refusal_that_a_library_swallowed(run, monkeypatch, text: str, explained: bool) -> None:
    """One that asks for an older release than the driver's did not get the answer to its question for the version."""
    monkeypatch.setattr(probes, "driver_version_elsewhere", lambda: None if "without" in text else V13_0)
    assert why(run, RuntimeError(text)) == ""
    run._emulated.refuse("cuGetExportTable")
    begin(run)
    assert ("it was refused in code outside of tests" in why(run, RuntimeError(text))) is explained


@pytest.mark.parametrize("refused_in", ["A", ""])
def test_a_runtime_that_was_refused(run, refused_in: str) -> None:
    """It repeats that answer: then weaker words are enough, also in the output, and other failures are counted."""
    assert why(run) == ""
    run.part(CAUSES).finish()
    assert run.part(LEDGER).outside.of_processes == []  # nothing is said of failures before it is refused
    run._emulated.refuse("cuGetExportTable")
    if refused_in:
        assert why(run) == f"the CUDA runtime: {NO_TABLES}\n\n{ADVICE}"
    else:
        begin(run)
    place = refused_in or "code outside of tests"
    repeats = (
        f"the CUDA runtime: it was refused in {place}, and repeats that for as long as its process lasts\n\n{ADVICE}"
    )
    texts = (SAYS, "operation not supported", "not supported with this CUDA", "Error: 801", "status = 801")
    for text in (*texts, "status 801: a resource requires CUDA 99.0"):
        assert why(run, RuntimeError(text)) == repeats
    for name in ("stdout", "stderr"):
        assert why(run, sections=[(f"Captured {name} call", "Warp CUDA error 801")])
    run._emulated.refuse("cuGetExportTable")
    begin(run)
    assert why(run, RuntimeError(SAYS)) == repeats
    book = run.part(LEDGER)
    assert run.part(CAUSES).finish() is None
    assert book.outside.of_processes == []
    for nodeid in ("A", "B", "B"):
        item = Item()
        item.nodeid = nodeid
        for text in ("error 8010", "something else"):
            assert why(run, RuntimeError(text), item=item) == ""
    item.nodeid = "C"
    reported(run, "call", item, outcome="skipped", error=ValueError())
    assert run.part(CAUSES).finish() is None
    (said,) = book.outside.of_processes
    assert said == (
        f"the CUDA runtime of a process was refused in {place}, and refuses every later call; 2 later tests without a "
        "known cause may have failed because of it: --cudalink-processes=isolated shows which"
    )


def raised(error: BaseException, otherwise: bool) -> BaseException:
    """The error, raised in one of two lines."""

    def library() -> None:
        if otherwise:
            raise error
        raise error

    with suppress(type(error)):
        library()
    return error


@pytest.mark.parametrize(("kind", "known"), [(RuntimeError, True), (AssertionError, False)])
def test_an_error_without_words_that_is_raised_where_the_first_was(run, kind: type[Exception], known: bool) -> None:
    """A library's own error is known by its line and its text, but not a comparison of values."""
    run._emulated.refuse("cuGetExportTable")
    assert why(run, raised(kind("at the refusal"), False))
    assert why(run, raised(kind("with its words"), False), sections=[("Captured stderr call", "CUDA error 801")])
    for text in ("at the refusal", "with its words"):
        assert bool(why(run, raised(kind(text), False))) is known
    assert why(run, raised(kind("at the refusal"), True)) == why(run, raised(kind("another"), False)) == ""


@pytest.mark.parametrize(
    ("calls", "refused"),
    [
        (["cuGetExportTable"], True),
        (["cudaLaunchKernel", "cuGetExportTable"], False),
        (["cuGetExportTable", "cudaLaunchKernel"], False),
        (["cudaLaunchKernel", "cuA", "cuGetExportTable"], True),
        (["cuGetExportTable", "cuA"], True),
    ],
)
def test_a_function_of_the_runtime_that_python_answers(run, calls, refused: bool) -> None:
    """It asks the runtime first, to answer as that does, which then has asked the driver in vain."""
    for call in calls:
        run._emulated.refuse(call, "no")
    shown = why(run)
    assert ("the CUDA runtime: it asks" in shown) is refused
    assert all(call in shown for call in calls if call != "cuGetExportTable")
    assert bool(why(run, RuntimeError("operation not supported"))) is refused


INSUFFICIENT = "CUDA driver version is insufficient for CUDA runtime version"


@pytest.mark.parametrize("text", [INSUFFICIENT, "cudaErrorInsufficientDriver (35)"])
@pytest.mark.parametrize("version", [V12_9, V13_0, None])
def test_a_runtime_that_needs_a_newer_driver(bare, text: str, version, monkeypatch) -> None:
    """Where there is a driver its version is the reason; else the missing driver."""
    monkeypatch.setattr(probes, "driver_version_elsewhere", lambda: version)
    reason = f"a driver of CUDA {version} serves" if isinstance(version, CudaVersion) else "this process finds no CUDA "
    assert why(bare, RuntimeError(text)).startswith(f"error  RuntimeError: {text}\nwhy    {reason}")
    assert why(bare, RuntimeError("something else")) == ""


# -- a missing driver

NO_DRIVER = {
    "kind": "no_driver",
    "why": "this process finds no CUDA driver, real or emulated",
    "suggestion": ["REMEDY", "with a GPU, install the NVIDIA driver"],
}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Failed to dlopen libcuda.so.1\nnor another", "Failed to dlopen libcuda.so.1"),
        ("a\n  No CUDA driver  \nlibcuda.so", "No CUDA driver"),
        (f"no NVIDIA driver{'x' * 300}", f"no NVIDIA driver{'x' * 184}"),
        (INSUFFICIENT, INSUFFICIENT),
        ("something else", None),
    ],
)
def test_a_missing_driver(bare, text: str, shown: str | None, monkeypatch) -> None:
    """The line that says so is the error; a driver that is there, real or emulated, is not missing."""
    monkeypatch.setattr(probes, "driver_version_elsewhere", lambda: None)
    report = pytest.TestReport("A", ("f.py", 0, "A"), {}, "failed", None, "call")
    causes.explain_unasked(bare.config, report, ValueError(text))
    assert failed(bare, ValueError(text)) == report.sections
    cause = bare.part(LEDGER).test.cause
    assert (cause and cause_record(cause)) == (None if shown is None else {**NO_DRIVER, "what": f"ValueError: {shown}"})
    assert [title for title, _ in report.sections] == ["cudalink: why"] * (cause is not None)
    for name in ("emulated_driver", "driver_exists"):
        with monkeypatch.context() as patch:
            patch.setattr(preload, name, object)
            assert failed(bare, ValueError(text)) == []
    passed = pytest.TestReport("A", ("f.py", 0, "A"), {}, "skipped", None, "call")
    causes.explain_unasked(bare.config, passed, ValueError(text))
    assert passed.sections == []


def test_errors_that_come_from_others(bare, run) -> None:
    """Each is read once; an error without a text says nothing, and on an emulated driver no driver is missing."""
    first, second, third = NamelessError(), ValueError("second"), OSError("libcuda.so.1")
    first.__context__, second.__cause__, third.__context__ = second, third, first
    assert why(bare, first).startswith("error  OSError: libcuda.so.1\n")
    assert why(run, first) == ""
    second.__context__ = OSError("no CUDA driver")
    assert why(bare, first).startswith("error  OSError: libcuda.so.1\n")


def test_a_capture_that_a_call_invalidated(run) -> None:
    """The call is named by its name in cuda.h, and its test if that was another; without one nothing is said."""
    driver, error, rest = run._emulated, ValueError("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"), "is a call that a capture"
    driver.invalid = (1, "cuMemAlloc_v2", True)
    driver.events.append({})
    begin(run)
    assert f"\nwhy    cuMemAlloc in A {rest}" in why(run, error)
    assert "RELAXED" in failed(run, error)[0][1]
    driver.captures = 1
    assert "\nwhy    the test captures a stream" in why(run, ValueError("900"))
    driver.captures = 0
    driver.invalid = (2, "cuStreamSynchronize", False)
    assert f"\nwhy    cuStreamSynchronize {rest} forbids" in why(run, error)
    assert "RELAXED" not in failed(run, error)[0][1]
    driver.invalid = (2, "cuMemAlloc_v2", True)
    assert why(run, ValueError("900")) == ""
    for nodeid in ("B", "C"):
        driver.events.append({})
        begin(run, nodeid)
    assert f"\nwhy    cuMemAlloc in A {rest}" in why(run, ValueError("901: invalid"))
    driver.captures = 1
    for nodeid in ("D", "E"):
        driver.events.append({})
        begin(run, nodeid)
    assert "\nwhy    C began to capture" in why(run, ValueError("900"))
    assert why(run, ValueError("CUDA_ERROR_STREAM_CAPTURE_UNJOINED (904)")) == ""  # the fault of this capture
    assert (run.part(CAUSES).left_open(ValueError("900")), run.part(CAUSES).left_open(error)) == ("C", "")
    driver.captures = 0
    assert "\nwhy    C began to capture" in why(run, ValueError("900"))
    assert run.part(CAUSES).left_open(ValueError("900")) == ""
    driver.captures = 1
    assert why(run) == ""
    assert "\nwhy    code outside of tests began to capture" in why(watching("report", captures=1), ValueError("900"))
    assert f"\nwhy    cuMemAlloc in A {rest}" in why(run, ValueError("capture invalidated"))
    driver.captures = 0
    driver.events.append({})
    begin(run)
    assert why(run, ValueError("900")) == ""
    driver.invalid = (0, "", False)
    assert why(run, error) == ""


# -- collecting


def test_a_file_that_cannot_be_collected(run) -> None:
    """What was refused while it was imported explains it, and stands in its record."""

    def collected(error: BaseException | None, *calls: str) -> SimpleNamespace:
        def makes() -> pytest.CollectReport:
            for call in calls:
                run._emulated.refuse(call, "no")
            return pytest.CollectReport("f.py", "failed", "E", [])

        plugin = SimpleNamespace(pytest_make_collect_report=makes)
        run.config.pluginmanager.register(plugin)
        report = run.config.hook.pytest_make_collect_report(collector=None)
        run.config.pluginmanager.unregister(plugin)
        call = SimpleNamespace(excinfo=None if error is None else SimpleNamespace(value=error))
        run.config.hook.pytest_exception_interact(node=None, call=call, report=report)
        return report

    report = collected(ValueError("x"), "cuA")
    assert report.sections == [("cudalink: not emulated", f"cuA: no\n\n{ADVICE}")]
    assert report.cudalink_cause["what"] == "CUDA_ERROR_NOT_SUPPORTED (801): cuA"
    run._emulated.refuse("cuA")
    for report in (collected(ValueError("x")), collected(None, "cuA")):
        assert (report.sections, hasattr(report, "cudalink_cause")) == ([], False)
    report = collected(ValueError("x"), "cuGetExportTable")
    assert report.sections == [("cudalink: not emulated", f"the CUDA runtime: {NO_TABLES}\n\n{ADVICE}")]
    report = collected(ValueError("error 801"))
    assert "it was refused in code outside of tests, and repeats" in report.sections[0][1]
    run._emulated.refuse("cuA")
    call = pytest.CallInfo.from_call(lambda: 1 / 0, "call")
    report = pytest.TestReport("A", ("f.py", 0, "A"), {}, "failed", None, "call")
    run.config.hook.pytest_exception_interact(node=None, call=call, report=report)
    assert report.sections == []
    assert why(run)  # that of a test is left for its report


# -- nvJitLink and the bundled linker


@pytest.mark.parametrize("call", ["nvJitLinkAddData", "nvJitLinkAddFile"])
def test_an_input_that_nvjitlink_refused(bare, call: str, monkeypatch, tmp_path) -> None:
    """It explains the phase in which it was refused where the version of nvJitLink is known and does not fit."""
    versions, asked = [V12_9], []

    def version(path: str) -> CudaVersion | None:
        asked.append(path)
        if isinstance(versions[0], Exception):
            raise versions[0]
        return versions[0]

    monkeypatch.setattr(probes, "version_of_nvjitlink", version)
    path = ARTIFACTS / "13.0" / "main.ptx"
    content = path.read_bytes()
    check = bare.part(CAUSES)
    if call == "nvJitLinkAddFile":  # a name that is not UTF-8
        content = os.path.join(os.fsencode(tmp_path), b"\xff.ptx")  # noqa: PTH118
        Path(os.fsdecode(content)).write_bytes(path.read_bytes())
    shown = (
        f"error  NVJITLINK_ERROR_PTX_COMPILE (4): {call} of PTX ISA 9.0 for sm_90, made by CUDA 13.0\n"
        "why    nvJitLink 12.9 reads PTX up to ISA 8.8; CUDA 13.0 wrote 9.0"
    )
    check.refused_input(RefusedInput(call, 4, "L", content))
    assert (why(bare), asked) == (shown, ["L"])
    assert why(bare) == ""
    for version_found in (None, V13_0, OSError(), RuntimeError()):
        versions[0] = version_found
        check.refused_input(RefusedInput(call, 4, "L", content))
        assert why(bare) == ""
    versions[0] = V12_9
    check.refused_input(RefusedInput("nvJitLinkAddFile", 4, "L", b"/no such file"))
    assert why(bare) == ""
    check.refused_input(RefusedInput(call, 4, "L", content))
    reported(bare, "call")
    assert why(bare) == ""
    check.refused_input(RefusedInput(call, 4, "L", content))
    begin(bare)
    assert why(bare) == ""


def test_a_refused_image_counts_before_a_refused_input(run, monkeypatch) -> None:
    """A library that falls back from nvJitLink to the driver fails because of the driver, unless it fits."""
    monkeypatch.setattr(probes, "version_of_nvjitlink", lambda _: V12_9)
    refused = RefusedInput("nvJitLinkAddData", 4, "L", (ARTIFACTS / "13.0" / "main.ptx").read_bytes())
    for call, more, shown in ((LOAD, NEWER, REFUSED_PTX), ("cuA", {}, "error  NVJITLINK"), (LOAD, FITS, "error  NVJ")):
        run.part(CAUSES).refused_input(refused)
        run._emulated.refuse(call, **more)
        assert why(run).startswith(shown)


def test_an_error_of_the_bundled_linker(run, monkeypatch) -> None:
    """It knows its input, and counts before what a driver refused."""
    artifact = read_words(["ptx sm_90 13.0 9.0"])
    error = LinkError("no", backend="nvjitlink", artifact=artifact, version=V12_9)
    outer = RuntimeError("outer")
    outer.__context__ = error
    run._emulated.refuse("cuA", "no")
    shown = why(run, outer)
    assert shown.startswith("error  VersionSkewError: a link of PTX ISA 9.0 for sm_90, made by CUDA 13.0\n")
    assert run.part(LEDGER).test.refused == []
    assert why(run, LinkError("no", backend="nvjitlink", artifact=artifact, version=V13_0)) == ""
    monkeypatch.delitem(sys.modules, LinkError.__module__)
    assert why(run) == ""


# -- a process that died


@pytest.mark.parametrize("unsupported", ["skip", "report"])
def test_a_process_that_died_of_a_refused_call(unsupported: str) -> None:
    """The last report of its test has the facts, and the failure is shown as that of a living one."""
    run = begun(unsupported=unsupported)
    last = pytest.TestReport("A", ("f.py", 0, "A"), {}, "failed", None, "teardown")
    seen = causes.explain_crash(run, ("cuA", "no"), last)
    assert seen.kind == "cudalink: not emulated"
    severity = "unknown" if unsupported == "skip" else "note"
    assert ("\n".join(seen.evidence), seen.severity) == (f"cuA: no\n\n{ADVICE}", severity)
    assert seen.what == "cudalink: needs a real driver: cuA is not emulated"
    assert last.cudalink["refused"] == [{"function": "cuA", "note": "no"}]
    assert last.cudalink["cause"]["why"] == "no"
