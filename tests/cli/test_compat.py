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
