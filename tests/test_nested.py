"""Nested pytests: a forked one finds what a fresh one finds, and ends as it would."""

import os
from pathlib import Path

import pytest

from tests.nested import Forks

MODULE = """
import os, sys
from pathlib import Path

def test_process():
    here = str(Path(__file__).parent)
    assert os.getcwd() == os.environ["HOME"] == sys.path[0] == here
    assert Path(sys.argv[0]).parts[-2:] == ("pytest", "__main__.py")
    assert sys.argv[0] == sys.modules["__main__"].__file__
    assert os.environ["ONLY_HERE"] == "yes"
    assert os.getppid() not in (0, 1)
    assert os.read(0, 1) == b""

def test_plugins(request):
    loaded = {name for name, _ in request.config.pluginmanager.list_name_plugin()}
    assert "cudalink" in loaded
    assert not loaded & {"xdist", "hypothesispytest"}
    assert not {"hypothesis", "numpy", "xdist"} & set(sys.modules)
"""


@pytest.mark.parametrize("fresh", [False, True])
def test_forked_is_as_fresh(run_pytest, pytester, monkeypatch, fresh: bool) -> None:
    """Folder, environment, search path, main module, standard input and plugins are those of a process of its own."""
    monkeypatch.setenv("ONLY_HERE", "yes")
    pytester.makepyfile(MODULE)
    run_pytest(fresh=fresh).assert_outcomes(passed=2)


A_SECOND = """
import pytest
from tests.conftest import a_second
from tests.nested import Forks

def test_dear(): Forks.cpu_seconds += 1000  # as a forked run that computes for so long

def test_cheap(): pass
"""


def test_a_quick_test_has_a_second_of_cpu(run_pytest, pytester, monkeypatch, forks) -> None:
    """The quick tier names each test that takes more, with the runs that it starts; a folder apart has no limit."""
    before = Forks.cpu_seconds
    forks.capture(["-c", "import time\nwhile time.process_time() < 0.2: pass"], pytester.path, os.environ)
    assert Forks.cpu_seconds - before >= 0.1
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    monkeypatch.setenv("CC", "true")  # with zig as the compiler there is no limit
    pytester.makeini("[pytest]\nnorecursedirs = pages")
    pytester.makepyfile(test_quick=A_SECOND, **{"pages/test_page": A_SECOND})
    result = run_pytest("-mnot slow and not apart", "test_quick.py", "pages")
    result.assert_outcomes(passed=4, errors=1)
    result.stdout.fnmatch_lines(["the test took 1000.* s of CPU; expected at most 1 s in the quick tier, here * s: *"])
    result.stdout.fnmatch_lines(["ERROR test_quick.py::test_dear - Failed: *"])
