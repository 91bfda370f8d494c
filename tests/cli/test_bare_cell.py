"""Bare cells: a wheel that forgets a requirement is green beside a toolkit of the system, and red without it.

The project is like cudf before cudf#23089: its library is linked with libnvrtc.so.12, and its metadata do not say so.
"""

import json
import os
import platform
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from pytest_cudalink.base import compiler
from pytest_cudalink.cli import bare_cell as bare
from pytest_cudalink.emulator import emulation_for, library_folder
from pytest_cudalink.matrix import importing, load_cells, runner
from pytest_cudalink.matrix.cells import RunKeys
from pytest_cudalink.report import read
from pytest_cudalink.report.merge import merge
from tests.compiled import compile_c
from tests.matrix.test_hiding import _NOTHING_ALLOWED, REFUSED, needs_namespaces
from tests.system_runtime import make_system_runtime

ERROR = "OSError: libnvrtc.so.12: cannot open shared object file: No such file or directory"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """An environment with the wheel of the project, and a toolkit outside of it: `toolkit/lib64`."""
    folder = tmp_path_factory.mktemp("site")
    libraries = folder / "toolkit" / "lib64"
    user = "int nvrtcVersion(void);\nint needy(void) { return nvrtcVersion(); }\n"
    nvrtc = compile_c(libraries / "libnvrtc.so.12", "int nvrtcVersion(void) { return 12; }\n")
    needy = compile_c(folder / "libneedy.so", user, str(nvrtc))
    compile_c(folder / "libbuilt.so", user, str(nvrtc), f"-Wl,-rpath,{libraries}")
    wheel = folder / "needy-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        load = "import ctypes, pathlib\nctypes.CDLL(str(pathlib.Path(__file__).with_name({!r})))\n"
        file.writestr("needy/__init__.py", load.format("libneedy.so"))
        file.writestr("fine.py", "")
        file.writestr("opens.py", "import ctypes, os\nctypes.CDLL(os.environ['OPENED'])\n")
        file.write(needy, "needy/libneedy.so")
        file.writestr("needy-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: needy\nVersion: 1.0\n")
        file.writestr("needy-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("needy-1.0.dist-info/RECORD", "")
    uv = str(Path(sys.executable).with_name("uv"))
    subprocess.run([uv, "venv", "-q", "--no-cache", "--python", sys.executable, str(folder / "venv")], check=True)
    python = str(folder / "venv" / "bin" / "python")
    subprocess.run([uv, "pip", "install", "-q", "--no-cache", "--no-index", "--python", python, str(wheel)], check=True)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (packages / "left-1.0.dist-info").mkdir()  # of a package whose other files are gone
    return folder


@pytest.fixture
def run(site, tmp_path, monkeypatch):
    """Run a bare cell as the runners do: its code, its output and its record."""
    monkeypatch.delenv("CUDALINK_CELL_KEYS", raising=False)

    def run_cell(text: str, *, refuse: bool = False, **env: str):
        file = tmp_path / "cells.toml"
        file.write_text(f'[cells.one]\nkind = "bare"\n{text}\n')
        (cell,) = load_cells(file)
        command = runner.command(cell, (), tmp_path)
        if refuse and not REFUSED:
            command = ["unshare", "--user", "--map-root-user", "sh", "-c", _NOTHING_ALLOWED, "sh", *command]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("CUDALINK_")}
        path = f"{site / 'venv' / 'bin'}:{os.environ['PATH']}"
        environment = {**clean, **env, **runner.environment(cell, tmp_path), "PATH": path}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        return done, read(tmp_path / ".cudalink" / "one.jsonl")

    return run_cell


def outcomes(record) -> dict[str, str]:
    """The steps of a record with their outcomes."""
    return {test.nodeid: test.outcome for test in record.tests}


def test_a_bare_cell_finds_a_forgotten_requirement(site, run, tmp_path) -> None:
    """An import that a toolkit of the system lets pass is red, with the words of the loader in record and report."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(site / "toolkit" / "lib64")}
    python = str(site / "venv" / "bin" / "python")
    subprocess.run([python, "-c", "import needy"], env=environment, check=True, cwd=site / "venv")
    ci = {"GITHUB_ACTIONS": "true", "GITHUB_SHA": "ab" * 20}
    done, record = run('imports = ["needy", "fine"]', LD_LIBRARY_PATH=str(site / "toolkit" / "lib64"), **ci)
    assert done.returncode == 1
    assert record.run.origin["commit"] == "ab" * 20
    assert "import needy: failed\n" in done.stdout
    assert ERROR in done.stdout
    assert outcomes(record) == {"import::needy": "failed", "import::fine": "passed"}
    assert (record.tests[0].reason, record.end.exitstatus) == (ERROR, 1)
    assert "Traceback (most recent call last)" in record.tests[0].longrepr
    report = merge([tmp_path / ".cudalink"])
    (cell,) = report.cells
    assert (cell.outcomes["import::needy"], cell.details["import::needy"].reason) == ("F", ERROR)
    assert (cell.axes["kind"], cell.fault) == ("bare", "")
    assert record.run.facts["packages"]["needy"] == "1.0"
    assert not {"pytest", "none"} & record.run.facts["packages"].keys()


@pytest.mark.parametrize("refuse", [pytest.param(False, marks=[pytest.mark.slow, needs_namespaces]), True])
def test_a_library_that_knows_the_folder_of_its_build(site, run, refuse) -> None:
    """A hidden folder does not open, though the path inside the library leads there.

    Where the kernel refuses to hide it, it opens, and the cell does not claim otherwise.
    """
    command = f'command = "python -c \'import ctypes; ctypes.CDLL(\\"{site}/libbuilt.so\\")\'"\n'
    done, record = run(command + f'hidden = ["{site}/toolkit"]', refuse=refuse)
    (step,) = record.tests
    assert (step.outcome, step.reason) == (("passed", "") if refuse else ("failed", ERROR))
    assert record.run.axes["hidden"] == ("environment only" if refuse else "mount namespace")
    said = f"): {site}/toolkit still opens by its path" if refuse else f"hidden by a mount namespace: {site}/toolkit"
    assert said in record.run.hidden
    assert f"cudalink: {record.run.hidden}\n" in done.stderr


_CUDA = """
import ctypes
version = ctypes.c_int()
assert ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)) == 0
"""


@pytest.mark.parametrize("driver", ["13.0", pytest.param("absent", marks=pytest.mark.slow)])
def test_the_driver_of_a_bare_cell(run, tmp_path, driver) -> None:
    """An emulated driver is there for every program, from outside of the environment, and an absent one for none."""
    script = tmp_path / "smoke.py"
    script.write_text(_CUDA)
    _, record = run(f'driver = "{driver}"\ncommand = "python smoke.py"\nprovenance = "wheels"\nhidden = []')
    version = record.run.versions["driver"]
    wanted = {"13.0": ("passed", "13.0", "emulated"), "absent": ("failed", None, "absent")}[driver]
    assert (*outcomes(record).values(), version["found"], version["kind"]) == wanted
    assert version["requested"] == driver
    (library,) = record.libraries  # it fits every expectation, as a driver does
    assert (library.soname, library.place) == ("libcuda.so.1", "emulated")
    assert (library.for_whom == "opened through LD_PRELOAD") is (driver == "13.0")


@pytest.mark.slow
def test_code_beside_the_wheel_is_not_imported(run, tmp_path) -> None:
    """Neither the working folder nor PYTHONPATH stands in for what the wheel lacks."""
    (tmp_path / "lacking.py").write_text("")
    _, record = run('imports = ["lacking"]\nhidden = []', PYTHONPATH=str(tmp_path))
    assert outcomes(record) == {"import::lacking": "failed"}


# -- libraries


@pytest.fixture(scope="session")
def systems(once) -> Path:
    """A folder with the toolkits ``12.9``, ``13.0`` and ``13.2`` of a system, of which only the runtime is there."""

    def make(folder: Path) -> None:
        for version in ("12.9", "13.0", "13.2"):
            make_system_runtime(folder, version)

    return once("bare-systems", make)


def runtime(systems: Path, version: str) -> str:
    """The path of a runtime of a system."""
    return str(systems / version / "lib64" / f"libcudart.so.{version.partition('.')[0]}")


def test_a_library_from_elsewhere_fails_the_step(run, systems) -> None:
    """With the words of the plugin, in output and record; other steps pass."""
    old = runtime(systems, "12.9")
    done, record = run('imports = ["opens", "fine"]\nprovenance = "wheels"\nhidden = []', OPENED=old)
    assert (done.returncode, outcomes(record)) == (1, {"import::opens": "failed", "import::fine": "passed"})
    first = f"libcudart.so.12 is from the system: {old}; expected a wheel of this environment"
    assert record.tests[0].reason == first
    assert record.tests[0].longrepr.startswith(
        f"cudalink: {first}\n  --cudalink-provenance is wheels (from environment CUDALINK_PROVENANCE)\n"
    )
    assert "/opens.py:2\n  Install the wheel that brings libcudart, and require it" in record.tests[0].longrepr
    assert record.tests[0].longrepr in done.stdout
    assert record.run.axes["provenance"] == "wheels"
    (system,) = record.libraries
    assert (system.nodeid, system.during, system.place, system.version) == ("import::opens", "call", "system", "12.9")
    assert (system.path, system.soname) == (old, "libcudart.so.12")
    _, expected = run('imports = ["opens"]\nprovenance = "system"\nhidden = []', OPENED=old)
    assert outcomes(expected) == {"import::opens": "passed"}


def test_two_of_one_library(run, systems, tmp_path) -> None:
    """In one process they fail the step; in two processes of a step they may be."""
    tmp_path.joinpath("both.py").write_text("import ctypes, sys\nfor one in sys.argv[1:]: ctypes.CDLL(one)\n")
    tmp_path.joinpath("apart.py").write_text(
        "import subprocess, sys\nfor one in sys.argv[1:]: subprocess.run([sys.executable, 'both.py', one])\n"
    )
    paths = f"{runtime(systems, '13.0')} {runtime(systems, '13.2')}"
    done, both = run(f'command = "python both.py {paths}"\nprovenance = "system"\nhidden = []')
    assert list(outcomes(both).values()) == ["failed"]
    assert both.tests[0].reason == "two minors of libcudart in one process:"
    assert "cudalink: two " in done.stdout
    _, apart = run(f'command = "python apart.py {paths}"\nprovenance = "system"\nhidden = []')
    assert list(outcomes(apart).values()) == ["passed"]
    assert sorted(library.path for library in apart.libraries) == sorted(paths.split())


def test_a_program_that_cannot_be_seen(run, tmp_path) -> None:
    """A static program has no loader that could write a list: the record says so, and an expectation is not met."""
    source = tmp_path / "program.c"
    source.write_text("int main(void) { return 0; }\n")
    command = [*compiler.find_compiler(), "-static", str(source), "-o", str(tmp_path / "program")]
    # zig links musl alone statically
    command += ["-target", f"{platform.machine()}-linux-musl"] if "ziglang" in command else []
    subprocess.run(command, check=True)
    done, record = run('command = "./program"\nprovenance = "wheels"\nhidden = []')
    assert outcomes(record) == {"command::./program": "failed"}
    words = "the CUDA libraries of command::./program cannot be listed: the loader wrote no list: this is a static"
    assert record.tests[0].reason.startswith(words)
    assert f"cudalink: {words}" in done.stdout


@pytest.mark.parametrize(
    ("event", "library", "files", "line"),
    [
        ("ctypes.dlopen", "libx.so", ["/a.py"], ("libx.so", "/a.py:1", "")),
        ("ctypes.dlopen", b"libx.so", ["/x/ctypes/__init__.py", "/a.py"], ("libx.so", "/a.py:2", "")),
        ("ctypes.dlopen", "libx.so", ["<frozen importlib>", "/a.py", "/b.py"], ("libx.so", "/a.py:2", "")),
        (
            *("ctypes.dlopen", "libx.so"),
            ["/x/ctypes/__init__.py", "/x/cuda/pathfinder/_dl.py", "/x/ctypes/util.py", "/a.py"],
            ("libx.so", "/a.py:4", "cuda.pathfinder"),
        ),
        ("ctypes.dlopen", "libx.so", ["/x/ctypes/__init__.py"], ("libx.so", "/x/ctypes/__init__.py:1", "")),
        ("ctypes.dlopen", None, ["/a.py"], None),
        ("open", "libx.so", ["/a.py"], None),
    ],
)
def test_who_opens_a_library(monkeypatch, tmp_path, event, library, files, line) -> None:
    """The code above ctypes, cuda.pathfinder and the import; each opening has a line."""
    hooks = []
    monkeypatch.setattr(importing.sys, "addaudithook", hooks.append)
    importing._follow(str(tmp_path / "opened"))
    importing._follow(str(tmp_path))  # a file that cannot be written stops nothing
    frame = None
    for number, name in reversed([*enumerate(files, 1)]):
        frame = SimpleNamespace(f_back=frame, f_code=SimpleNamespace(co_filename=name), f_lineno=number)
    with monkeypatch.context() as context:
        context.setattr(importing.sys, "_getframe", {1: frame}.__getitem__)
        for hook in hooks * 2:
            hook(event, (library,))
    written = (tmp_path / "opened").read_text().splitlines() if line else []
    assert written == [ascii(line)] * 2 * bool(line)
    assert (tmp_path / "opened").exists() is bool(line)


# -- without programs

FACTS = {"python": "3.12.1", "driver": "13.0", "emulated": True, "packages": {"m": "1.0"}, "sites": [], "prefixes": []}
LIBRARY = {"name": "libx", "soname": "libx.so.1"}


@pytest.fixture
def steps(tmp_path, monkeypatch):
    """Run a bare cell whose programs end as the list says: its code, the programs, and the lines of its record."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(python.parent))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bare.hiding, "loader_cache", list)

    def run_steps(keys: RunKeys, ends=(), judged=(), facts=FACTS, **variables: str):
        asked, ends, judged = [], list(ends), list(judged)

        def popen(command, **options):
            asked.append((command, options, list(Path(options["cwd"]).iterdir())))
            if isinstance(end := ends.pop(0), OSError):
                raise end
            process = mock.MagicMock(returncode=end[0], pid=7)
            process.communicate.return_value = (end[1], None)
            return process

        def judge(*of_step):
            return judged.pop(0)(of_step)

        def run_facts(command, *, cwd, env, **options):
            if command[0] == "git":
                raise FileNotFoundError(2, "No such file", "git")
            assert command == [str(python), "-c", bare._FACTS]
            assert (list(Path(cwd).iterdir()), env["PYTHONSAFEPATH"]) == ([], "1")
            assert options == {"capture_output": True, "text": True, "check": True}
            return SimpleNamespace(stdout=json.dumps(facts))

        monkeypatch.setattr(bare.subprocess, "Popen", popen)
        monkeypatch.setattr(bare.subprocess, "run", run_facts)
        environment = {"CUDALINK_REPORT": str(tmp_path / "r.jsonl"), **variables}
        monkeypatch.setattr(bare, "_judge", judge)
        code = bare.run(keys, environment)
        lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
        for line in lines:
            assert time.time() - 100 < line.pop("time") <= time.time()
            assert line["event"] not in ("test", "end") or 0 < line.pop("duration") < 100
        return code, asked, environment, lines

    return run_steps


def test_steps_without_programs(steps, tmp_path, capsys) -> None:
    """Each step's program, outcome and reason, with what the judge says of what it loaded."""
    loaded = []
    tool = tmp_path / "other" / "tool"
    tool.parent.mkdir()
    tool.touch(mode=0o755)

    def judge(*words) -> object:
        return lambda of_step: loaded.append(of_step) or bare.LoadReport(*words)

    keys = RunKeys(imports=["m.a", "m.b", "m.c", "m.d"], command="tool x::y '1 2'")
    judged = [judge((), (), ["noted\n  more", "again"]), judge([LIBRARY], ["wrong\n  more", "worse"])]
    judged += [judge(), judge(), judge((), ["wrong"])]
    ends = [(0, "fine"), (0, ""), (-6, "last\n words \n \n"), (3, ""), (1, "é" * 5000)]
    variables = {"PATH": str(tool.parent), "PYTHONPATH": "x", "CUDA_HOME": "x", "CUDALINK_CELL": "one", "V": "1"}
    (tmp_path / "r.jsonl").write_text("old\n")
    code, asked, environment, lines = steps(keys, ends, judged, **variables)
    python = str(tmp_path / "bin" / "python")
    assert code == 1
    kept = {"V": "1", "CUDALINK_CELL": "one", "CUDALINK_REPORT": str(tmp_path / "r.jsonl")}
    own = {"PYTHONSAFEPATH": "1", "PYTHONNOUSERSITE": "1", "PATH": f"{tmp_path}/bin:{tool.parent}"}
    assert environment == own | kept
    for (command, options, within), entry, name in zip(asked, loaded, [*keys.imports, None], strict=True):
        step, *others, place, pid = entry
        text = bare._IMPORT.read_text(encoding="utf-8")
        assert command == ([python, "-c", text, name, str(place / "opened")] if name else [str(tool), "x::y", "1 2"])
        assert options.pop("cwd") == (str(place / "empty") if name else str(tmp_path))
        assert (within == []) is bool(name)
        assert options.pop("env") == {**environment, "LD_DEBUG": "files,libs", "LD_DEBUG_OUTPUT": str(place / "loader")}
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        assert options == streams | {"text": True, "errors": "replace"}
        assert (step.folder, others, pid) == (None if name else str(tmp_path), [environment, FACTS], 7)
    run, *rest = lines
    assert len(run.pop("run")) == 32
    assert run.pop("origin").keys() == {"project", "commit", "branch", "ci_url", "dirty"}
    driver = {"requested": None, "found": "13.0", "source": "cuDriverGetVersion", "kind": "emulated"}
    expected = {"event": "run", "schema": 1, "cell": "one", "python": "3.12.1", "versions": {"driver": driver}}
    expected |= {"platform": f"{sys.platform}-{platform.machine()}", "facts": {"packages": {"m": "1.0"}}}
    expected |= {"arch": {"requested": None, "found": None}}
    assert {key: value for key, value in run.items() if value} == expected
    tests = {"import": keys.imports, "command": ["tool x::y '1 2'"]}
    ids = [f"{kind}::{name}" for kind, names in tests.items() for name in names]
    wrong = "cudalink: wrong\n"
    expected = [
        ("passed", "noted", ""),
        ("failed", "wrong", f"{wrong}  more\ncudalink: worse\n"),
        ("crashed", "words", "last\n words \n \n"),
        ("failed", "ended with exit code 3", ""),
        ("failed", "é" * 5000, f"…{'é' * (3999 - 1 - len(wrong))}\n{wrong}"),
    ]
    assert rest[0] == {"event": "collected", "tests": tests}
    counts = {"passed": 1, "failed": 3, "crashed": 1}
    assert rest[-1].items() >= {"event": "end", "exitstatus": 1, "counts": counts}.items()
    ended = [event for event in rest if event["event"] == "test"]
    assert [(event["nodeid"], event["outcome"], event["reason"], event["longrepr"]) for event in ended] == [
        (name, *fields) for name, fields in zip(ids, expected, strict=True)
    ]
    assert [event["nodeid"] for event in rest if event["event"] == "start"] == ids
    (library,) = (event for event in rest if event["event"] == "library")
    assert library.items() >= {"nodeid": ids[1], "during": "call", **LIBRARY}.items()
    (crash,) = (event for event in rest if event["event"] == "crash")
    assert (crash["nodeid"], crash["signal"]) == (ids[2], "SIGABRT")
    assert capsys.readouterr().out == (
        "import m.a: passed\ncudalink: noted\n  more\ncudalink: again\n"
        "import m.b: failed\ncudalink: wrong\n  more\ncudalink: worse\n"
        "import m.c: crashed\nlast\n words \n \n"
        f"import m.d: failed\ncommand tool x::y '1 2': failed\n{'é' * 5000}\n{wrong}"
    )


def test_a_program_that_does_not_start_without_programs(steps, capsys) -> None:
    """It fails without a judge; what fits exactly is shown whole."""
    ends = [OSError(2, "No such file")]
    code, asked, _, lines = steps(RunKeys(command="nothing --now"), ends)
    assert (code, asked[0][0]) == (1, ["nothing", "--now"])
    reason = "nothing cannot be run: No such file"
    assert [(x["reason"], x["longrepr"]) for x in lines if x["event"] == "test"] == [(reason, f"{reason}\n")]
    judged = [lambda _: bare.LoadReport(), lambda _: bare.LoadReport((), ("x" * 3989,))]
    code, _, _, lines = steps(RunKeys(command="a", imports=["m"]), [(0, ""), (0, "")], judged)
    reasons = [(line["reason"], line["longrepr"]) for line in lines if line["event"] == "test"]
    assert reasons == [("", ""), ("x" * 3989, f"cudalink: {'x' * 3989}\n")]
    assert steps(RunKeys(imports=["m"]), [(0, "")], [lambda _: bare.LoadReport()])[0] == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("driver", "emulated", "kind"), [(None, False, "absent"), ("12.9", False, "real"), ("12.9", True, "emulated")]
)
def test_facts_without_programs(steps, tmp_path, monkeypatch, capsys, driver, emulated, kind) -> None:
    """The record has what was asked for, what was found, and what was hidden."""
    monkeypatch.setattr(bare, "_driver", lambda environment: {"CUDA_VISIBLE_DEVICES": "0"})
    keys = RunKeys(axes={"kind": "bare"}, packages={"m": "2"}, hidden=["/nowhere/*"])
    variables = {"CUDALINK_DRIVER": "x", "CUDALINK_DEVICE": "sm_90"}
    variables["CUDALINK_CELL_KEYS"] = keys.as_json()
    facts = FACTS | {"driver": driver, "emulated": emulated}
    code, _, environment, (run, *_) = steps(keys, facts=facts, **variables)
    assert (code, environment["CUDA_VISIBLE_DEVICES"]) == (0, "0")
    assert environment["PATH"] == f"{tmp_path}/bin:"
    source = "cuDriverGetVersion"
    assert run["versions"]["driver"] == {"requested": "x", "found": driver, "source": source, "kind": kind}
    assert (run["versions"]["m"]["requested"], run["versions"]["m"]["found"]) == ("2", "1.0")
    assert run["arch"] == {"requested": "sm_90", "found": None}
    assert run["axes"] == {"kind": "bare", "m": "1.0", "hidden": "nothing to hide"}
    assert capsys.readouterr().err == f"cudalink: {run['hidden']}\n"


def test_drivers_without_programs() -> None:
    """The variables by which every program finds the driver of the cell; none for that of the machine."""
    driver, arch = "CUDALINK_DRIVER", "CUDALINK_DEVICE"
    for environment in ({}, {driver: "auto"}, {driver: "real"}):
        assert bare._driver(environment) == {}
    assert bare._driver({driver: "absent"}) == {"LD_LIBRARY_PATH": str(library_folder(absent=True))}
    there = {"LD_PRELOAD": str(library_folder() / "libcuda.so.1"), "LD_LIBRARY_PATH": str(library_folder())}
    for device in ("", "sm_75"):
        own = emulation_for("13.0", device=device).environment()
        assert bare._driver({driver: "13.0", arch: device} if device else {driver: "13.0"}) == {**own, **there}


def test_what_cannot_be_run_without_programs(steps, tmp_path, monkeypatch, capsys) -> None:
    """Without another Python, with a pattern that is too wide, or a driver that there is not, nothing begins."""

    def said(**hidden: list[str]) -> str:
        environment = {"CUDALINK_REPORT": str(tmp_path / "r.jsonl")}
        assert bare.run(RunKeys(**hidden), environment) == 2
        return capsys.readouterr().err

    assert said(hidden=[sys.prefix]).startswith(f"cudalink: hidden = {sys.prefix!r} hides ")

    monkeypatch.setattr(bare.subprocess, "run", mock.Mock(side_effect=subprocess.CalledProcessError(1, "python")))
    assert said() == f"cudalink: {tmp_path}/bin/python does not start\n"
    words = (
        "cudalink: the Python of the cell's environment is {}; expected another than that of the runner; run the cell "
        "with nox or tox\n"
    )
    monkeypatch.setattr(bare.sys, "executable", str(tmp_path / "bin" / "python"))
    assert said() == words.format(tmp_path / "bin" / "python")
    monkeypatch.setenv("PATH", "/nowhere")
    assert said() == words.format("not on the PATH")
    assert not (tmp_path / "r.jsonl").exists()
