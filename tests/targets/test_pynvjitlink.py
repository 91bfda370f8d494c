"""pynvjitlink, as released: it has nvJitLink alone, so its links are watched. ``nox -s targets`` installs it."""

from __future__ import annotations

import json

import pytest

HEAD = """
import pytest
from pynvjitlink import NvJitLinker, NvJitLinkError

def complete():
    linker = NvJitLinker("-arch=sm_90")
    for name in ("main.ptx", "user.ptx"):
        linker.add_ptx(open(name, "rb").read(), name)
    assert linker.get_linked_cubin()[:4] == b"\\x7fELF"
"""


def test_forced_to_nvjitlink(go, pynvjitlink, pytester) -> None:
    """Forced to nvJitLink it passes; header, summary and record have it, with every input."""
    result = go("def test_links(): complete()\n", "--force-backend=nvjitlink", "--cudalink-report=run.jsonl", head=HEAD)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [f"cudalink: forced to nvjitlink: *pynvjitlink {pynvjitlink}*", "pynvjitlink: 1 link (1 on nvJitLink)"]
    )
    events = [json.loads(line) for line in pytester.path.joinpath("run.jsonl").read_text().splitlines()]
    (link,) = [event for event in events if event["event"] == "link"]
    assert (link["target"], link["backend"], link["result"]) == ("pynvjitlink", "nvjitlink", "ok")
    assert [(one["kind"], one["name"]) for one in link["inputs"]] == [("ptx", "main.ptx"), ("ptx", "user.ptx")]


@pytest.mark.parametrize("test", ["complete()", "with pytest.raises(Exception): complete()"])
def test_forced_to_the_driver(go, pynvjitlink, test) -> None:
    """It cannot link on the driver: a test that links through it fails and says so, even where it expects an error."""
    result = go(f"def test_links():\n    {test}\n", "--force-backend=driver", head=HEAD)
    result.assert_outcomes(failed=1)
    said = f"pynvjitlink {pynvjitlink} was forced to driver by --force-backend*, but its linker says nvjitlink*"
    advice = (
        "It links with nvjitlink only: do not use it where driver is forced, or leave it out with --cudalink-target"
    )
    result.stdout.fnmatch_lines([f"cudalink: not forced: pynvjitlink {pynvjitlink}: it links with nvjitlink only"])
    result.stdout.fnmatch_lines([f"*{said}. {advice}*"])


def test_left_out(go, pynvjitlink) -> None:
    """What the message advises lets the test pass."""
    result = go("def test_links(): complete()\n", "--force-backend=driver", "--cudalink-target=cuda.core", head=HEAD)
    result.assert_outcomes(passed=1)


def test_refused_link(go, pynvjitlink) -> None:
    """A link that fails while its inputs are added counts, and its error reaches the test unchanged."""
    module = """
def test_refused():
    linker = NvJitLinker("-arch=sm_90")
    with pytest.raises(NvJitLinkError, match="(?i)ptx"):
        linker.add_ptx(b".version 99.9\\n.target sm_90\\n.address_size 64\\n", "bad.ptx")
        linker.get_linked_cubin()
"""
    result = go(module, head=HEAD)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["pynvjitlink: 1 link (1 on nvJitLink)"])
