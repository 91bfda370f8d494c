import subprocess
import sysconfig
from pathlib import Path

import cuda.tile as ct
from cuda.tile.compilation import CallingConvention, KernelSignature, export_kernel


@ct.kernel
def f() -> None:
    pass


tileiras = Path(sysconfig.get_path("purelib"), "nvidia", "cu13", "bin", "tileiras")
signature = KernelSignature([], CallingConvention.cutile_python_v1(), symbol="f")
for version in ("13.2", "13.3", "13.4"):
    form = {"gpu_code": "sm_100", "output_format": "tileir_bytecode", "bytecode_version": version}
    export_kernel(f, [signature], "f.tileir", **form)
    command = [tileiras, "--gpu-name=sm_100", "f.tileir", "-o", "f.cubin"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print("bytecode", version, "exit code", done.returncode, done.stderr.strip() or "and a cubin")
