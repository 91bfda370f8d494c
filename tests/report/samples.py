"""Record files, as runs write them, for the tests of the report."""

import re
from pathlib import Path

from pytest_cudalink.report.cell_run import CellRun, Detail, UnsteeredLinks
from pytest_cudalink.report.matrix_report import MatrixReport
from pytest_cudalink.report.origin import Origin
from pytest_cudalink.report.records import (
    CollectedRecord,
    CrashRecord,
    EndRecord,
    ExitRecord,
    FindingRecord,
    FoundRecord,
    LibraryRecord,
    LinkRecord,
    RunRecord,
    StartRecord,
    StickyRecord,
    TestRecord,
    UnsteeredRecord,
    VerdictRecord,
    ViolationRecord,
    Writer,
)

#: What no form may contain, but the ends of its own lines: characters that are obeyed or not seen.
OBEYED = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
#: Why a test fails on a driver that is too old, and why one needs a GPU, as the plugin records it.
SKEW = {
    "kind": "skew",
    "what": "CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222): cuModuleLoadData of PTX ISA 9.0, sm_90",
    "why": "a driver of CUDA 12.9 reads PTX up to ISA 8.8; CUDA 13.0 wrote 9.0",
    "suggestion": ["compile with CUDA 12.9", "link the PTX with nvJitLink"],
}
LAUNCH = {
    "kind": "not_emulated",
    "what": "CUDA_ERROR_NOT_SUPPORTED (801): cuLaunchKernel is not emulated",
    "why": "an emulated driver executes no kernels",
    "suggestion": ["skip the test: --cudalink-unsupported=skip"],
}
_TEST = "tests/test_a.py::test"
_DRIVER = {"requested": "13.0", "found": "13.0", "source": "cuDriverGetVersion", "kind": "emulated"}
#: An event of each kind, with a value in most keys.
EVENTS = (
    RunRecord(
        run="0" * 32,
        cell="ctk-13.0",
        python="3.11.9",
        platform="linux-x86_64",
        pytest="9.2.0",
        argv=["-x"],
        settings={name: {"value": "auto", "source": "default"} for name in ("backend", "policy")},
        versions=dict.fromkeys(("ctk", "driver", "nvjitlink", "cupy"), _DRIVER),
        arch={"requested": None, "found": "sm_90"},
        facts={"more": [1, {"a": None}]},
        origin=Origin("solver", "0" * 40, "main", "https://ci.example/runs/1", dirty=False).record(),
    ),
    FoundRecord(worker="gw0", versions={"driver": _DRIVER}, arch={"requested": None, "found": "sm_90"}),
    CollectedRecord(tests={"tests/test_a.py": ["test"]}),
    StartRecord(nodeid=_TEST, worker="gw0"),
    LinkRecord(
        target="bundled",
        backend="driver",
        inputs=[{"kind": "ptx", "name": "a.ptx", "producer": "13.0"}],
        versions={"driver": "13.0", "nvjitlink": None},
        duration=0.001,
    ),
    UnsteeredRecord(worker="gw0", via="cuda.bindings.driver", call="cuLinkComplete", where="a.py:12", backend="driver"),
    LibraryRecord(
        nodeid=_TEST,
        worker="gw0",
        during="call",
        name="libcudart",
        soname="libcudart.so.13",
        path="/usr/local/cuda/lib64/libcudart.so.13",
        real_path="/usr/local/cuda-13.0/lib64/libcudart.so.13.0.96",
        version="13.0",
        witness="its file name",
        for_whom="opened at a.py:12",
    ),
    ViolationRecord(nodeid=_TEST, text="freed too early", check="lifetimes", number=1, what="array", history=["made"]),
    VerdictRecord(severity="error", kind="same-major", what="no", fix="install", evidence=["nvrtc", "no driver"]),
    TestRecord(
        nodeid=_TEST,
        worker="gw0",
        outcome="passed",
        duration=0.5,
        backends={"driver": 2},
        links=2,
        subtests=[{"description": "i=1", "outcome": "passed"}],
        cause=SKEW,
    ),
    CrashRecord(
        nodeid=_TEST, worker="gw0", signal="SIGSEGV", last_events=["cuLinkCreate"], frames=["Segmentation fault"]
    ),
    StickyRecord(nodeid=_TEST, code=700, error="CUDA_ERROR_ILLEGAL_ADDRESS (700)", after=2),
    FindingRecord(
        nodeid=_TEST,
        category="schedule",
        kind="failed",
        what="failed: old",
        repeat="pytest tests/test_a.py::test",
        operations=[
            {
                "number": 3,
                "function": "cuMemcpyDtoHAsync_v2",
                "stream": "stream 1",
                "place": "a.py:3 in test",
                "late": True,
                "queued": 0,
                "ready": 1,
                "done": None,
            }
        ],
    ),
    EndRecord(exitstatus=1, duration=1.5, counts={"passed": 1}, failing=["nothing was linked"], unlinked_modules=2),
    ExitRecord(exitcode=1, output=["FAIL Required test coverage of 99% not reached."]),
)
NASTY = "</script><script>alert(1)</script><b>&amp;"


def write(folder: Path, cell: str, tests: dict[str, str], end: bool = True, status: int = 0, **axes) -> Path:
    """A record file: tests by name with their outcome; ``ctk``, ``driver``, ``backend`` and ``policy`` as axes.

    A name with a dot in it is a file's. ``causes`` has the causes of tests by name.
    """
    file = folder / f"{cell}.jsonl"
    with Writer(file) as writer:
        driver = axes.get("driver", "13.0")
        of_wheel = {"requested": None, "source": "a wheel", "kind": "real"}
        versions = {
            "ctk": {**of_wheel, "requested": axes.get("asked"), "found": axes.get("ctk", "13.0") + ".2"},
            "driver": {"requested": driver, "found": driver, "source": "cuDriverGetVersion", "kind": "emulated"},
            **{name: {**of_wheel, **version} for name, version in axes.get("versions", {}).items()},
        }
        writer.write(
            RunRecord(
                run=cell,
                cell=cell,
                python=axes.get("python", "3.11") + ".7",
                settings={
                    name: {"value": axes.get(name, value), "source": "default"}
                    for name, value in (("backend", "auto"), ("policy", "strict-major"))
                },
                versions=versions,
                arch={"requested": None, "found": "sm_90"},
            )
        )
        for name, outcome in tests.items():
            nodeid = name if "." in name else f"tests/test_a.py::{name}"
            writer.write(StartRecord(nodeid=nodeid))
            if outcome == "cut":
                continue
            backend = axes.get("linked", "nvjitlink")
            writer.write(LinkRecord(nodeid=nodeid, target="bundled", backend=backend, result=axes.get("result", "ok")))
            documented = {"requirement": "driver >= 13", "raises": "222"} if outcome == "documented" else None
            outcome = "passed" if documented else outcome  # noqa: PLW2901
            reason = "" if outcome == "passed" else f"why {name}"
            cause = axes.get("causes", {}).get(name)
            fields = {"duration": 0.5, "reason": reason, "documented": documented, "cause": cause}
            longrepr = f"long {NASTY}" if outcome in ("failed", "error") else ""
            writer.write(TestRecord(nodeid=nodeid, outcome=outcome, longrepr=longrepr, **fields))
        for verdict in axes.get("verdicts", ()):
            writer.write(VerdictRecord(**verdict))
        for text in axes.get("violations", ()):
            writer.write(ViolationRecord(nodeid="tests/test_a.py::a", text=text))
        for where, linked in axes.get("unsteered", ()):
            place = {"via": "cuda.bindings.driver", "call": "cuLinkComplete", "where": where, "backend": linked}
            writer.write(UnsteeredRecord(forced="nvjitlink", **place))
        if end:
            modules = axes.get("modules", 0)
            writer.write(EndRecord(exitstatus=status, duration=2.5, unlinked_modules=modules))
    return file


CTKS, DRIVERS = ("12.9", "13.0", "13.2"), ("12.9", "13.0", "13.2", "none")
ORIGIN = Origin(
    "sample", "4f1c2ab9" * 5, "main", "https://github.com/example/sample/actions/runs/7", "2026-11-22T17:20:05Z"
)


def outcome(number: int, ctk: str, driver: str) -> tuple[str, Detail]:
    """Letter and detail of one test in one cell."""
    if number % 41 == 3 and ctk == "13.2":
        said = "AssertionError: linked add<int>, expected add<float>" + (
            "" if number == 3 else f" of {'abcde'[number // 41]}"
        )
        return "F", Detail(said, "E   linked:   add<int>\nE   expected: add<float>")  # alike, they were one card
    if number % 37 == 5 and driver == "12.9" and ctk != "12.9":
        return "D", Detail("driver >= 13 not met: CUDA_ERROR_UNSUPPORTED_PTX_VERSION")
    if number % 29 == 7 or (number % 23 == 9 and driver == "none"):
        return "S", Detail("cudalink: needs a GPU (found none)")
    if number == 60 and driver not in ("none", "12.9"):
        return "U", Detail("cuGraphicsGLRegisterBuffer is not emulated")
    if number == 111 and (ctk, driver) == ("13.0", "12.9"):
        return "C", Detail("SIGSEGV")
    return ("x", Detail("known")) if number % 31 == 11 else ("P", Detail())


def matrix() -> MatrixReport:
    """Twelve cells of two hundred tests, with something of everything."""
    cells = []
    for ctk in CTKS:
        for driver in DRIVERS:
            cell = CellRun(f"ctk-{ctk}-driver-{driver.replace('none', 'absent')}", finished=True, exitstatus=0)
            cell.axes = {"ctk": ctk, "driver": driver, "backend": "auto", "python": "3.11"}
            cell.origins = [ORIGIN]
            cell.versions = {
                "driver": {
                    "requested": driver,
                    "found": driver if driver != "none" else None,
                    "kind": "emulated",
                    "source": "cuDriverGetVersion",
                }
            }
            cell.versions |= {
                name: {"requested": None, "found": version, "kind": "real", "source": "wheel"}
                for name, version in (
                    ("ctk", f"{ctk}.2"),
                    ("nvjitlink", f"{ctk}.2"),
                    ("cuda-bindings", "13.1.0" if (ctk, driver) == ("13.2", "13.0") else "13.2.0"),
                    ("cuda-core", "1.1.1"),
                )
            }
            cell.links, cell.duration = {"nvjitlink": 120, "driver": 40}, 12.5
            if (ctk, driver) == ("12.9", "13.0"):
                cell.versions["ctk"]["requested"] = "13.0"
                cell.violations = [
                    ViolationRecord(
                        nodeid="tests/test_link_0.py::test_case[2]", text="log buffer freed before cuLinkDestroy"
                    )
                ]
            if (ctk, driver) == ("13.0", "13.0"):
                place = ("cuda.bindings.driver", "cuLinkComplete", "sample/jit.py:41")
                cell.unsteered = [UnsteeredLinks(*place, "driver", "driver", 3)]
            for number in range(190 if driver == "none" else 200):
                test = f"tests/test_link_{number // 40}.py::test_case[{number}]"
                letter, detail = outcome(number, ctk, driver)
                cell.outcomes[test], cell.durations[test] = letter, 0.05
                if letter != "P":
                    cell.details[test] = detail
                if letter == "C":
                    cell.crashes = [CrashRecord(nodeid=test, signal="SIGSEGV", last_events=["cuLinkAddData_v2"])]
            cells.append(cell)
    reasons = {"ctk-13.2-gpu": "it needs a GPU; none was found", "ctk-13.0-python-3.13": "no Python 3.13 here"}
    return MatrixReport(cells, missing=[*reasons], reasons=reasons)
