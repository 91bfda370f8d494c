"""Links in worker processes for a whole run: the switch, the limit, and what the header says of both."""

import os

import pytest

from pytest_cudalink.plugin import settings
from tests.nested import ALONE, BOTH

MODULE = """
import os, subprocess, sys
from pathlib import Path
import pytest
from pytest_cudalink.linker import Linker, LinkerOptions, LinkError, ObjectCode

def test_contained():
    code = ObjectCode.from_cubin(Path("user.cubin").read_bytes(), name="user")
    with Linker(code, options=LinkerOptions(arch="sm_90"), backend="nvjitlink") as linker:
        assert type(linker._state).__name__ == "ContainedState"
        assert linker.link("cubin").code

def test_children():
    program = "import os; print(os.environ.get('CUDALINK_CONTAIN'), os.environ.get('CUDALINK_LINK_TIMEOUT'))"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "yes 7\\n"
"""


@pytest.mark.parametrize("arguments", [ALONE, BOTH])
def test_a_run(pytester, run_pytest, samples, toolkit, arguments) -> None:
    """Every link on nvJitLink is contained, in workers of xdist and isolated tests too; children inherit both."""
    pytester.path.joinpath("user.cubin").write_bytes(samples[f"{toolkit}/user.cubin"])
    result = run_pytest("-ocudalink_contain=yes", "-ocudalink_link_timeout=7", *arguments, module=MODULE)
    result.ended(passed=2)
    result.shows("cudalink: link worker: contain yes (from ini), limit of a call, in seconds: 7 (from ini)")


def test_the_environment_is_restored(monkeypatch) -> None:
    """What was put into the environment is undone, also where a variable had another value."""
    monkeypatch.setenv("CUDALINK_LINK_TIMEOUT", "5")
    before = dict(os.environ)
    values = {"contain": settings.Setting("yes", "option"), "link_timeout": settings.Setting("8", "ini")}
    undo = settings.share(settings.Settings(**values))
    assert (os.environ["CUDALINK_CONTAIN"], os.environ["CUDALINK_LINK_TIMEOUT"]) == ("yes", "8")
    undo()
    assert dict(os.environ) == before
