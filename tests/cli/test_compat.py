"""``cudalink compat``."""

from __future__ import annotations

import json

from packaging.requirements import Requirement

from pytest_cudalink import cli
from pytest_cudalink.audit.declared import find_lack
from pytest_cudalink.compat import exports


def test_symbols(capsys) -> None:
    """Each library and major that has a symbol is one line, with the requirement to write."""
    assert cli.main(["compat", "exports", "nvJitLinkVersion", "cufftEnterCS", "cuCtxGetDevice_v2"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "nvJitLinkVersion",
        "  libnvJitLink.so.12 of CUDA 12: since 12.3; nvidia-nvjitlink-cu12>=12.3.52,<13",
        "  libnvJitLink.so.13 of CUDA 13: since 13.0; nvidia-nvjitlink>=13.0.39,<14",
        "cufftEnterCS",
        "  libcufft.so.11 of CUDA 12: since 12.0, gone in 12.3; nvidia-cufft-cu12>=11.0.0.21,<11.0.11.19",
        "cuCtxGetDevice_v2",
        "  libcuda.so.1 of CUDA 13: since 13.0",
    ]


def test_unknown_symbol(capsys) -> None:
    """An unknown symbol fails with a suggestion; the others are shown."""
    assert cli.main(["compat", "exports", "nvJitLinkVerson", "__nvJitLinkGetErrorLog_13_1"]) == 1
    said = capsys.readouterr()
    known = "cudalink compat: no known CUDA library exports nvJitLinkVerson; did you mean nvJitLinkVersion"
    assert said.err.startswith(known)
    assert said.out.startswith("__nvJitLinkGetErrorLog_13_1\n  libnvJitLink.so.13 of CUDA 13: since 13.1;")
    assert cli.main(["compat", "exports", "qwertz"]) == 1
    assert capsys.readouterr().err == "cudalink compat: no known CUDA library exports qwertz\n"


def test_json(capsys) -> None:
    """Programs get every release, and the unknown symbols with nothing found."""
    assert cli.main(["compat", "exports", "--json", "cufftLeaveCS", "qwertz"]) == 1
    known, unknown = json.loads(capsys.readouterr().out)
    assert known["found"] == [
        {
            "library": "libcufft",
            "cuda": 12,
            "soname": "libcufft.so.11",
            "since": "12.0",
            "until": "12.3",
            "releases": ["12.0", "12.1", "12.2"],
            "distribution": "nvidia-cufft-cu12",
            "wheel": "11.0.0.21",
            "requirement": "nvidia-cufft-cu12>=11.0.0.21,<11.0.11.19",
        }
    ]
    assert unknown == {"symbol": "qwertz", "found": []}


def test_known_bad(capsys) -> None:
    """Every entry, or those that versions meet, with thread, open condition and advice."""
    assert cli.main(["compat", "known-bad"]) == 0
    every = capsys.readouterr().out
    given = ["nvidia-nvjitlink-cu12==12.8.93", "nvidia-cuda-nvrtc==13.0.88", "numba==0.62.1", "--driver", "570.26"]
    assert cli.main(["compat", "known-bad", *given]) == 1
    assert capsys.readouterr().out.splitlines() == [
        (
            "nvJitLink 12.8 with cubins of CUDA 13 for sm_100 or sm_120: the process ends with SIGSEGV; 12.0 to 12.6 "
            "return an error (3), and so does 12.9 (9)"
        ),
        "  only   for sm_100, sm_120, if it links cubin",
        "  do     link cubins of CUDA 13 with nvJitLink 13 or newer",
    ]
    assert every.count("  do     ") > 10
    assert cli.main(["compat", "known-bad", "cuda-core==1.2.2"]) == 0
    assert cli.main(["compat", "known-bad", "cuda-core"]) == 2
    assert "expected NAME==VERSION" in capsys.readouterr().err


def test_known_bad_of_what_is_installed(capsys, monkeypatch) -> None:
    """The installed versions, as JSON."""
    monkeypatch.setattr("pytest_cudalink.compat.wheels.all_versions", lambda: {"tilelang": "0.1.15"})
    assert cli.main(["compat", "known-bad", "--installed", "--json"]) == 1
    (entry,) = json.loads(capsys.readouterr().out)
    assert (entry["id"], entry["versions"]) == ("tilelang-0-1-15-entry-points", {"tilelang": "==0.1.15"})


def test_symbol_that_a_terminal_would_obey(capsys) -> None:
    """A name with an escape sequence and an end of line is shown as one line of text."""
    assert cli.main(["compat", "exports", "nv\x1b[31mJit\nLink"]) == 1
    assert capsys.readouterr().err == "cudalink compat: no known CUDA library exports nv\\x1b[31mJit Link\n"


def test_the_requirement_satisfies_the_audit(capsys) -> None:
    """What the command says to write has the ceiling that the audit of wheels wants."""
    assert cli.main(["compat", "exports", "--json", "nvJitLinkVersion", "cudaMalloc", "cufftExecC2C"]) == 0
    for symbol in json.loads(capsys.readouterr().out):
        for row in symbol["found"]:
            versions = {
                version: release
                for release in exports.releases(row["library"], row["cuda"])
                for version in exports.wheel_versions(row["library"], release)
            }
            floor = exports.since(row["library"], row["cuda"], symbol["symbol"])
            requirements = [Requirement(row["requirement"])]
            assert find_lack(requirements, row["distribution"], versions, floor=floor) is None
