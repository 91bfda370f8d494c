"""Make the entries of fatbins that tests put together: ``python tests/data/make_fatbin_entries.py``, with nvcc 13.0.

PTXAS_OF_CUDA_12 is the path of the ptxas of nvidia-cuda-nvcc-cu12 12.9.86, for the one entry of that toolkit.

Each file is one entry as nvcc writes it, header and payload. Its kernel has the name of the file, so that a loaded
module says which entry it was made from.
"""

import os
import re
import subprocess
import tempfile
from pathlib import Path

OUT = Path(__file__).parent / "fatbin-entries"
FATBIN_HEADER = 16

#: The names of the entries and their kernels: kind, architecture, and how it is packed.
ENTRIES = (
    "cubin75", "cubin80", "cubin86", "cubin89", "cubin90", "cubin90second", "cubin90a", "cubin100", "cubin90zstd",
    "cubin90lz4", "cubin80zstd", "ptx75", "ptx80", "ptx90", "ptx90second", "ptx90a", "ptx100", "ptx100f", "ptx80zstd",
    "ptx90zstd", "ptx90lz4", "ptx100zstd", "lto90",
)  # fmt: skip
CODE = {"cubin": "sm", "ptx": "compute", "lto": "lto"}
PACKED = {"zstd": ["--compress-mode=size"], "lz4": ["--compress-mode=speed", "-Xfatbin", "-compress-all"]}


def options(name: str) -> list[str]:
    """The options of nvcc for an entry."""
    kind, arch, how = re.fullmatch(r"([a-z]+)(\d+[af]?)(second|zstd|lz4|)", name).groups()  # type: ignore[union-attr]
    return ["-gencode", f"arch=compute_{arch},code={CODE[kind]}_{arch}", *PACKED.get(how, ["-no-compress"])]


def main() -> None:
    """Compile each entry and cut off the header of its fatbin."""
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "kernel.cu"), Path(folder, "kernel.fatbin")
        for name in ENTRIES:
            source.write_text(f'extern "C" __global__ void {name}(int *out) {{ *out = 1; }}\n', encoding="utf-8")
            command = ["nvcc", "-fatbin", *options(name), source.name, "-o", made.name]
            subprocess.run(command, check=True, cwd=folder)
            (OUT / f"{name}.entry").write_bytes(made.read_bytes()[FATBIN_HEADER:])
        source.write_text('extern "C" __global__ void cubin90cuda12(int *out) { *out = 1; }\n', encoding="utf-8")
        image = "--image3=kind=elf,sm=90,file=kernel.cubin"
        commands = (
            ["nvcc", "-ptx", "-arch=compute_90", source.name, "-o", "kernel.ptx"],
            ["sed", "-i", "s/^.version 9.0/.version 8.8/", "kernel.ptx"],
            [os.environ["PTXAS_OF_CUDA_12"], "-arch=sm_90", "kernel.ptx", "-o", "kernel.cubin"],
            ["fatbinary", "-64", image, f"--create={made.name}", "--compress=false"],
        )
        for command in commands:
            subprocess.run(command, check=True, cwd=folder)
        (OUT / "cubin90cuda12.entry").write_bytes(made.read_bytes()[FATBIN_HEADER:])


if __name__ == "__main__":
    main()
