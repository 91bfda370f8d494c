"""Measure which nvJitLink links which libcudadevrt.a, and write data/cudadevrt.toml. Needs an index, and no GPU.

    python -m tools.make_cudadevrt [FOLDER]

Installs the newest wheel of nvJitLink and of the CUDA runtime of each release into FOLDER (default: a folder in the
temporary directory), and links a kernel that calls ``cudaGetLastError`` with each pair, each in its own process.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_cudalink.compat import exports
from pytest_cudalink.versions import CudaVersion

__all__ = ["ARCHITECTURES", "link", "main"]

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
# Which libcudadevrt.a each nvJitLink links, measured with the newest wheels of each release by
#
#     python -m tools.make_cudadevrt
#
# A kernel that calls cudaGetLastError was linked with the archive for {archs}.
# [links] has a row for each release of nvJitLink: the code of the call that refuses the archive (0: it links), by
# release of libcudadevrt.a. The wheels of the runtime have the archive from 12.9 on.
"""


def link(nvjitlink: str, archive: str, arch: str) -> tuple[int, str]:
    """Return the code of a link of a kernel with an archive, and nvJitLink's log.

    Parameters
    ----------
    nvjitlink, archive : str
        Files.
    arch : str
    """
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


def _files(folder: Path, stem: str, pattern: str) -> Iterator[tuple[CudaVersion, str, Path]]:
    """Release, wheel and file of each release that has wheels."""
    for major, distribution in exports.distributions(stem).items():
        for release in exports.releases(stem, major):
            version = exports.wheel_versions(stem, release)[-1]
            target = folder / f"{stem}-{release}"
            if not target.exists():
                wheel = f"{distribution}=={version}"
                install = ("pip", "install", "--quiet", "--no-deps", "--target", str(target), wheel)
                subprocess.run(["uv", *install], check=True)  # noqa: S607
            for file in sorted(target.rglob(pattern))[:1]:  # the runtime's wheels have the archive from 12.9 on
                yield release, version, file


def _measured(nvjitlink: Path, archive: Path) -> list[list[Any]]:
    """Architecture, code and log of each link of a pair, in a separate process: some inputs end one."""
    words = [sys.executable, __file__, "--link", str(nvjitlink), str(archive)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    return [*lines, ["", done.returncode, "the process ended"]] if done.returncode else lines


def main(folder: Path) -> int:
    """Measure every pair and write the table; returns 1 if a pair's code depends on architecture or options."""
    linkers = sorted(_files(folder, "libnvJitLink", "libnvJitLink.so.*"))
    archives = sorted(_files(folder, "libcudart", "libcudadevrt.a"))
    rows, logs, differ = [], {}, 0
    for release, _, nvjitlink in linkers:
        codes = []
        for other, _, archive in archives:
            found = _measured(nvjitlink, archive)
            if len({code for *_, code, _ in found}) > 1:
                differ = 1
                sys.stderr.write(f"nvJitLink {release}, libcudadevrt.a {other}: {found}\n")
            code, log = max((code, log) for *_, code, log in found)
            codes.append(f'"{other}" = {code}')
            if code:
                logs[f"{release} {other}"] = log.splitlines()[0].replace(str(archive), "libcudadevrt.a") if log else ""
        rows.append(f'"{release}" = {{ {", ".join(codes)} }}')
    lines = [
        _HEAD.format(archs=" and ".join(ARCHITECTURES)),
        "[wheels]",
        f"nvjitlink = {json.dumps([version for _, version, _ in linkers])}",
        f"runtime = {json.dumps([version for _, version, _ in archives])}",
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


if __name__ == "__main__":
    if sys.argv[1:2] == ["--link"]:
        for one in ARCHITECTURES:
            sys.stdout.write(json.dumps([one, *link(sys.argv[2], sys.argv[3], one)]) + "\n")
    else:
        sys.exit(main(Path(sys.argv[1] if sys.argv[1:] else Path(tempfile.gettempdir()) / "cudadevrt")))
