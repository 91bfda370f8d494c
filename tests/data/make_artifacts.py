"""Make the sample images of tests/data/artifacts with the toolkit of the running environment.

Run it once in an environment of each toolkit: ``python tests/data/make_artifacts.py``. The fatbins, objects and the
library need nvcc on the PATH and are made by the environment whose toolkit has nvcc's release.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from pytest_cudalink import probes
from pytest_cudalink.linker import Linker, LinkerOptions, Program, ProgramOptions, sample

OUT = Path(__file__).parent / "artifacts"
SOURCES = {"main": sample.MAIN_SOURCE, "user": sample.USER_SOURCE}


def by_toolkit() -> None:
    folder = OUT / str(probes.nvjitlink_version())
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    for name, source in SOURCES.items():
        for kind in ("ptx", "ltoir", "cubin"):
            options = ProgramOptions(name=f"{name}.cu", arch="sm_90", relocatable_device_code=True)
            code = Program(source, "c++", options).compile(kind)
            made[name, kind] = code
            (folder / f"{name}.{kind}").write_bytes(code.code)
    linked = Linker(made["main", "ptx"], made["user", "ptx"], options=LinkerOptions(arch="sm_90")).link("cubin")
    (folder / "linked.cubin").write_bytes(linked.code)
    blackwell = ProgramOptions(name="user.cu", arch="sm_100", relocatable_device_code=True)
    (folder / "user-sm_100.cubin").write_bytes(Program(SOURCES["user"], "c++", blackwell).compile("cubin").code)


def by_nvcc() -> None:
    with tempfile.TemporaryDirectory() as work:
        source = Path(work) / "user.cu"
        source.write_text(SOURCES["user"], encoding="utf-8")
        both = "-gencode=arch=compute_90,code=[sm_90,compute_90]"
        lto = "-gencode=arch=compute_90,code=lto_90"
        for name, options in {
            "user.fatbin": ["-fatbin", both],
            "user-lto.fatbin": ["-fatbin", lto],
            "user-plain.fatbin": ["-fatbin", both, "-no-compress"],
            "user.o": ["-c", both],
            "user-lto.o": ["-c", lto],
            "user.a": ["-lib", both],
        }.items():
            subprocess.run(
                ["nvcc", "-rdc=true", *options, str(source), "-o", str(OUT / "nvcc" / name)], check=True, cwd=work
            )


if __name__ == "__main__":
    by_toolkit()
    if shutil.which("nvcc") and str(probes.nvjitlink_version()) == "13.0":
        (OUT / "nvcc").mkdir(exist_ok=True)
        by_nvcc()
