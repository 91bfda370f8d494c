"""Make the fatbins of this folder with the nvcc 13.0 on the PATH: one program, packed in each way that nvcc has.

``none`` is not packed, ``speed`` by LZ4, ``size`` by zstd. ``virtual.cubin`` is for sm_86, from PTX for compute_80;
``empty.cubin`` is of a program without device code.
"""

import subprocess
import tempfile
from pathlib import Path

SOURCE = 'extern "C" __global__ void scale(float *p, float by) { p[threadIdx.x] *= by; }\n'
CODE = ("compute_80,code=[sm_80,compute_80]", "compute_90a,code=[sm_90a,lto_90a]", "compute_100f,code=sm_100f")


def main() -> None:
    """Write the fatbins."""
    folder = Path(__file__).parent
    with tempfile.TemporaryDirectory() as work:
        source = Path(work) / "scale.cu"
        source.write_text(SOURCE, encoding="utf-8")
        targets = [f"-gencode=arch={code}" for code in CODE]
        for mode in ("none", "speed", "size"):
            out = ["-o", str(folder / f"{mode}.fatbin")]
            packed = f"-compress-mode={mode}"
            subprocess.run(["nvcc", "-fatbin", packed, *targets, source.name, *out], check=True, cwd=work)
        out = ["-o", str(folder / "virtual.cubin")]
        code = "-gencode=arch=compute_80,code=sm_86"
        subprocess.run(["nvcc", "-cubin", code, source.name, *out], check=True, cwd=work)
        source.write_text("int main() {}\n", encoding="utf-8")
        out = ["-o", str(folder / "empty.cubin")]
        subprocess.run(["nvcc", "-cubin", "-arch=sm_75", source.name, *out], check=True, cwd=work)


if __name__ == "__main__":
    main()
