"""The plugin's hooks, as another project's conftest implements them: what happened, in which test."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.nested import ALONE, BOTH

HOOKS = """
import json, os
from pathlib import Path

def note(**content):
    with Path(os.environ["HEARD"]).open("a") as file:
        file.write(json.dumps(content) + "\\n")

def pytest_cudalink_link(event):
    note(hook="link", target=event.target, backend=event.backend, nodeid=event.nodeid)

def pytest_cudalink_verdict(verdict, nodeid):
    note(hook="verdict", status=verdict.status, nodeid=nodeid)

def pytest_cudalink_violation(violation, nodeid, maker):
    note(hook="violation", call=violation.call, nodeid=nodeid, maker=maker)

def pytest_cudalink_unsupported(target, reason):
    note(hook="unsupported", target=target, reason=reason)
"""

TESTS = """
import ctypes

def test_links(linker_factory):
    from pytest_cudalink.linker import LinkerOptions, ObjectCode
    linker_factory(ObjectCode.from_ptx("user.ptx"), options=LinkerOptions(arch="sm_90")).link("cubin")

def test_looks_up():
    import cuda.pathfinder
    cuda.pathfinder.find_nvidia_header_directory("nvrtc")

def test_frees_too_early():
    cu = ctypes.CDLL("libcuda.so.1")
    context, state = ctypes.c_void_p(), ctypes.c_void_p()
    assert cu.cuInit(0) == 0 and cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cu.cuCtxSetCurrent(context) == 0
    keys, values, log = (ctypes.c_int * 2)(5, 6), (ctypes.c_uint64 * 2)(), (ctypes.c_char * 256)()
    values[0], values[1] = ctypes.addressof(log), len(log)
    assert cu.cuLinkCreate_v2(2, keys, values, ctypes.byref(state)) == 0
    values[0] = 0
    assert cu.cuLinkDestroy(state) == 0
"""


@pytest.fixture
def heard(pytester: pytest.Pytester, samples, toolkit, run_pytest, monkeypatch) -> Callable[..., list[dict[str, str]]]:
    """Run the tests on an emulated driver, and return what the hooks of the conftest were called with."""
    file = Path(pytester.path) / "heard.jsonl"
    monkeypatch.setenv("HEARD", str(file))
    (pytester.path / "user.ptx").write_bytes(samples["12.9/user.ptx"])
    pytester.makeconftest(HOOKS)
    pytester.makepyfile(test_it=TESTS)

    def run(*arguments: str) -> list[dict[str, str]]:
        run_pytest("--cudalink-driver=13.0", "--cudalink-guard-rails=best_effort", *arguments)
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]

    return run


@pytest.mark.parametrize("arguments", [ALONE, BOTH])
def test_a_project_hears_what_happened(heard, arguments) -> None:
    """Links, verdicts and violations reach the hooks of a project, each with its test."""
    found = heard(*arguments)
    links = [one for one in found if one["hook"] == "link"]
    assert {(one["target"], one["nodeid"]) for one in links} == {("bundled", "test_it.py::test_links")}
    assert len(links) == 1
    verdicts = [one for one in found if one["hook"] == "verdict" and one["nodeid"] == "test_it.py::test_looks_up"]
    assert verdicts
    assert all(one["status"] for one in verdicts)
    violations = [one for one in found if one["hook"] == "violation"]
    too_early = "test_it.py::test_frees_too_early"
    assert {(one["call"], one["nodeid"], one["maker"]) for one in violations} == {
        ("cuLinkDestroy", too_early, too_early)
    }
