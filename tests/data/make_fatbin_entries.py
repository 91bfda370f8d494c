"""Make the entries of fatbins that tests put together: ``python tests/data/make_fatbin_entries.py``, with nvcc 13.0.

PTXAS_OF_CUDA_12 is the path of the ptxas of nvidia-cuda-nvcc-cu12 12.9.86, for the one entry of that toolkit.

Each file is one entry as nvcc writes it, header and payload. Its kernel has the name of the file, so that a loaded
module says which entry it was made from.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

OUT = Path(__file__).parent / "fatbin-entries"
FATBIN_HEADER = 16

PLAIN, SMALL, FAST = ["-no-compress"], ["--compress-mode=size"], ["--compress-mode=speed", "-Xfatbin", "-compress-all"]
#: Name of the entry and its kernel: virtual architecture, code, how it is packed.
ENTRIES = {
    "cubin75": ("compute_75", "sm_75", PLAIN),
    "cubin80": ("compute_80", "sm_80", PLAIN),
    "cubin86": ("compute_86", "sm_86", PLAIN),
    "cubin89": ("compute_89", "sm_89", PLAIN),
    "cubin90": ("compute_90", "sm_90", PLAIN),
    "cubin90second": ("compute_90", "sm_90", PLAIN),
    "cubin90a": ("compute_90a", "sm_90a", PLAIN),
    "cubin100": ("compute_100", "sm_100", PLAIN),
    "cubin90zstd": ("compute_90", "sm_90", SMALL),
    "cubin90lz4": ("compute_90", "sm_90", FAST),
    "cubin80zstd": ("compute_80", "sm_80", SMALL),
    "ptx75": ("compute_75", "compute_75", PLAIN),
    "ptx80": ("compute_80", "compute_80", PLAIN),
    "ptx90": ("compute_90", "compute_90", PLAIN),
    "ptx90second": ("compute_90", "compute_90", PLAIN),
    "ptx90a": ("compute_90a", "compute_90a", PLAIN),
    "ptx100": ("compute_100", "compute_100", PLAIN),
    "ptx100f": ("compute_100f", "compute_100f", PLAIN),
    "ptx80zstd": ("compute_80", "compute_80", SMALL),
    "ptx90zstd": ("compute_90", "compute_90", SMALL),
    "ptx90lz4": ("compute_90", "compute_90", FAST),
    "ptx100zstd": ("compute_100", "compute_100", SMALL),
    "lto90": ("compute_90", "lto_90", PLAIN),
}


def main() -> None:
    """Compile each entry and cut off the header of its fatbin."""
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "kernel.cu"), Path(folder, "kernel.fatbin")
        for name, (virtual, code, packing) in ENTRIES.items():
            source.write_text(f'extern "C" __global__ void {name}(int *out) {{ *out = 1; }}\n', encoding="utf-8")
            target = f"arch={virtual},code={code}"
            subprocess.run(
                ["nvcc", "-fatbin", "-gencode", target, *packing, source.name, "-o", made.name], check=True, cwd=folder
            )
            (OUT / f"{name}.entry").write_bytes(made.read_bytes()[FATBIN_HEADER:])
        source.write_text('extern "C" __global__ void cubin90cuda12(int *out) { *out = 1; }\n', encoding="utf-8")
        commands = (
            ["nvcc", "-ptx", "-arch=compute_90", source.name, "-o", "kernel.ptx"],
            ["sed", "-i", "s/^.version 9.0/.version 8.8/", "kernel.ptx"],
            [os.environ["PTXAS_OF_CUDA_12"], "-arch=sm_90", "kernel.ptx", "-o", "kernel.cubin"],
            [
                "fatbinary",
                "-64",
                "--image3=kind=elf,sm=90,file=kernel.cubin",
                f"--create={made.name}",
                "--compress=false",
            ],
        )
        for command in commands:
            subprocess.run(command, check=True, cwd=folder)
        (OUT / "cubin90cuda12.entry").write_bytes(made.read_bytes()[FATBIN_HEADER:])


if __name__ == "__main__":
    main()
