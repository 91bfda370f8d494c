"""``cudalink compat``."""

from __future__ import annotations

import json

from pytest_cudalink import cli


def test_symbols(capsys) -> None:
    """Each library and major that has a symbol is one line, with the requirement to write."""
    assert cli.main(["compat", "exports", "nvJitLinkVersion", "cufftEnterCS", "cuCtxGetDevice_v2"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "nvJitLinkVersion",
        "  libnvJitLink.so.12 of CUDA 12: since 12.3; nvidia-nvjitlink-cu12>=12.3.52",
        "  libnvJitLink.so.13 of CUDA 13: since 13.0; nvidia-nvjitlink>=13.0.39",
        "cufftEnterCS",
        "  libcufft.so.11 of CUDA 12: since 12.0, gone in 12.3; nvidia-cufft-cu12>=11.0.0.21",
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
        }
    ]
    assert unknown == {"symbol": "qwertz", "found": []}


def test_known_bad(capsys) -> None:
    """Every entry, or those that versions meet, with thread, open condition and advice."""
    assert cli.main(["compat", "known-bad"]) == 0
    every = capsys.readouterr().out
    assert cli.main(["compat", "known-bad", "nvidia-nvjitlink==13.1.115", "numba==0.62.1", "--driver", "570.26"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        (
            "nvJitLink 13.1 with LTO-IR for sm_120: link with -lto fails: C7907 Internal compiler error "
            "(NVIDIA/numba-cuda#725); not reproduced"
        ),
        "  only   for sm_120, if it links ltoir",
        "  do     use another minor of nvJitLink, or link without LTO for sm_120",
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
