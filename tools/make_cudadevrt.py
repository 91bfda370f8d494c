"""Measure which nvJitLink links which libcudadevrt.a, and write data/cudadevrt.toml. Needs no GPU.

`tools.new_release` runs it with the toolchain of each release. A kernel that calls ``cudaGetLastError`` is linked with
each pair, each in its own process.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_cudalink.toolchains import Toolchain

TABLE = Path(__file__).resolve().parent.parent / "pytest_cudalink/data/cudadevrt.toml"
#: The newest that every nvJitLink has, and one that CUDA 13 no longer has. The archive has code of each.
ARCHITECTURES = ("sm_90", "sm_80")
_PTX_INPUT, _LIBRARY_INPUT = 2, 6
# every nvJitLink reads PTX 8.0
_PTX = """.version 8.0
.target {arch}
.address_size 64
.extern .func (.param .b32 result) cudaGetLastError;
.visible .entry last(.param .u64 out)
{{
  .reg .b32 %r<2>; .reg .b64 %rd<3>;
  {{ .param .b32 result; call.uni (result), cudaGetLastError, (); ld.param.b32 %r1, [result]; }}
  ld.param.u64 %rd1, [out]; cvta.to.global.u64 %rd2, %rd1; st.global.u32 [%rd2], %r1;
  ret;
}}
"""
_HEAD = """\
# Which libcudadevrt.a each nvJitLink links, measured with the toolchain of each release by `nox -s new-release`.
#
# A kernel that calls cudaGetLastError was linked with the archive for {archs}.
# [links] has a row for each release of nvJitLink: the code of the call that refuses the archive (0: it links), by
# release of libcudadevrt.a. The wheels of the runtime have the archive from 12.9 on.
"""


def link(nvjitlink: str, archive: str, arch: str) -> tuple[int, str]:
    """Return the code of a link of a kernel with an archive, and nvJitLink's log. `nvjitlink`, `archive`: files."""
    library = ctypes.CDLL(nvjitlink)

    def call(name: str, *arguments: Any) -> int:
        function = getattr(library, name, None) or getattr(library, f"__{name}_12_0")  # before 12.3: the numbered name
        return int(function(*arguments))

    handle = ctypes.c_void_p()
    words = [f"-arch={arch}".encode()]
    code = call("nvJitLinkCreate", ctypes.byref(handle), len(words), (ctypes.c_char_p * len(words))(*words))
    ptx = _PTX.format(arch=arch).encode() + b"\0"
    code = code or call("nvJitLinkAddData", handle, _PTX_INPUT, ptx, ctypes.c_size_t(len(ptx)), b"kernel.ptx")
    code = code or call("nvJitLinkAddFile", handle, _LIBRARY_INPUT, archive.encode())
    code = code or call("nvJitLinkComplete", handle)
    size = ctypes.c_size_t()
    call("nvJitLinkGetErrorLogSize", handle, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value + 1)
    call("nvJitLinkGetErrorLog", handle, log)
    return code, log.value.decode(errors="replace").strip()


def _measured(nvjitlink: Path, archive: Path) -> list[list[Any]]:
    """Architecture, code and log of each link of a pair, in a separate process: some inputs end one."""
    words = [sys.executable, __file__, "--link", str(nvjitlink), str(archive)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    return [*lines, ["", done.returncode, "the process ended"]] if done.returncode else lines


def _wheel(chain: Toolchain, package: str) -> str:
    """The version of a package in a toolchain."""
    return next(version for name, version in chain.packages.items() if name.removesuffix("-cu12") == package)


def write(chains: Sequence[Toolchain]) -> list[str]:
    """Measure every pair and write the table; returns a sentence for each pair whose code depends on architecture."""
    archives = [chain for chain in chains if (chain.lib / "libcudadevrt.a").exists()]  # the wheels have it from 12.9 on
    rows, logs, differ = [], {}, []
    for chain in chains:
        codes = []
        for other in archives:
            archive = other.lib / "libcudadevrt.a"
            answers = _measured(chain.library("nvJitLink"), archive)
            if len({code for *_, code, _ in answers}) > 1:
                differ.append(f"nvJitLink {chain.version}, libcudadevrt.a {other.version}: {answers}")
            code, log = max((code, log) for *_, code, log in answers)
            codes.append(f'"{other.version}" = {code}')
            if code:
                first = log.splitlines()[0].replace(str(archive), "libcudadevrt.a") if log else ""
                logs[f"{chain.version} {other.version}"] = first
        rows.append(f'"{chain.version}" = {{ {", ".join(codes)} }}')
    lines = [
        _HEAD.format(archs=" and ".join(ARCHITECTURES)),
        "[wheels]",
        f"nvjitlink = {json.dumps([_wheel(chain, 'nvidia-nvjitlink') for chain in chains])}",
        f"runtime = {json.dumps([_wheel(chain, 'nvidia-cuda-runtime') for chain in archives])}",
        "",
        "[links]",
        *rows,
        "",
        "# the first line of each different log, with the pair (nvJitLink, libcudadevrt.a) that printed it first",
        "[logs]",
        *(f'"{pair}" = {json.dumps(log)}' for log, pair in {log: pair for pair, log in reversed(logs.items())}.items()),
    ]
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return differ


if __name__ == "__main__":  # as `_measured` starts it: --link NVJITLINK ARCHIVE
    for architecture in ARCHITECTURES:
        sys.stdout.write(json.dumps([architecture, *link(sys.argv[2], sys.argv[3], architecture)]) + "\n")
