"""Make the sample images of tests/data/artifacts with the toolkit of the running environment.

Run it once in an environment of each toolkit: ``python tests/data/make_artifacts.py``. The fatbins, objects and the
library need nvcc on the PATH and are made by the environment whose toolkit has nvcc's release. The samples of CUDA Tile
need ``cuda-tile==1.7.0`` and ``cuda-toolkit[tileiras,nvfatbin]==13.5.*``, of whose tileiras the folder is given:
``python tests/data/make_artifacts.py …/nvidia/cu13``.
"""

import ctypes
import shutil
import subprocess
import sys
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
    for name, source in SOURCES.items():  # of main, that of 13.0 is kept
        blackwell = ProgramOptions(name=f"{name}.cu", arch="sm_100", relocatable_device_code=True)
        (folder / f"{name}-sm_100.cubin").write_bytes(Program(source, "c++", blackwell).compile("cubin").code)


#: The files of nvcc by name: the source and the options. In device_code, one program is packed in each way that nvcc
#: has: ``speed`` is by LZ4, ``size`` by zstd; ``virtual.cubin`` is for sm_86, from PTX for compute_80.
SCALE = 'extern "C" __global__ void scale(float *p, float by) { p[threadIdx.x] *= by; }\n'
BOTH, LTO = "-gencode=arch=compute_90,code=[sm_90,compute_90]", "-gencode=arch=compute_90,code=lto_90"
EACH = ("compute_80,code=[sm_80,compute_80]", "compute_90a,code=[sm_90a,lto_90a]", "compute_100f,code=sm_100f")
BY_NVCC = {
    "artifacts/nvcc/user.fatbin": ("user", "-rdc=true", "-fatbin", BOTH),
    "artifacts/nvcc/user-lto.fatbin": ("user", "-rdc=true", "-fatbin", LTO),
    "artifacts/nvcc/user-plain.fatbin": ("user", "-rdc=true", "-fatbin", BOTH, "-no-compress"),
    "artifacts/nvcc/user.o": ("user", "-rdc=true", "-c", BOTH),
    "artifacts/nvcc/user-lto.o": ("user", "-rdc=true", "-c", LTO),
    "artifacts/nvcc/user.a": ("user", "-rdc=true", "-lib", BOTH),
    **{
        f"device_code/{mode}.fatbin": (
            "scale",
            "-fatbin",
            f"-compress-mode={mode}",
            *(f"-gencode=arch={e}" for e in EACH),
        )
        for mode in ("none", "speed", "size")
    },
    "device_code/virtual.cubin": ("scale", "-cubin", "-gencode=arch=compute_80,code=sm_86"),
    "device_code/empty.cubin": ("empty", "-cubin", "-arch=sm_75"),
}


def by_nvcc(out: Path) -> None:
    for name, (source, *options) in BY_NVCC.items():
        text = {**SOURCES, "scale": SCALE, "empty": "int main() {}\n"}[source]
        with tempfile.TemporaryDirectory() as work:
            (Path(work) / f"{source}.cu").write_text(text, encoding="utf-8")
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["nvcc", *options, f"{source}.cu", "-o", str(out / name)], check=True, cwd=work)


def by_cuda_tile(toolkit: Path) -> None:
    import cuda.tile as ct
    from cuda.tile import _compile
    from cuda.tile.compilation import ArrayConstraint, CallingConvention, KernelSignature, export_kernel

    @ct.kernel
    def add(a, b, c) -> None:
        at = ct.bid(0)
        sums = ct.load(a, index=(at,), shape=(16,)) + ct.load(b, index=(at,), shape=(16,))
        ct.store(c, index=(at,), tile=sums)

    _compile._SUPPORTED_VERSIONS = tuple(_compile.BytecodeVersion)  # cuda-tile 1.7.0 keeps 13.5 for its developers
    array = ArrayConstraint(
        ct.float32,
        1,
        index_dtype=ct.int32,
        stride_lower_bound_incl=0,
        alias_groups=(),
        may_alias_internally=False,
        stride_constant=(1,),
    )
    folder = OUT / "tile"
    folder.mkdir(exist_ok=True)
    for version in ("13.1", "13.2", "13.3", "13.4", "13.5"):
        signature = KernelSignature([array] * 3, CallingConvention.cutile_python_v1(), symbol="add")
        export_kernel(
            add,
            [signature],
            folder / f"add-{version}.tileir",
            gpu_code="sm_100",
            output_format="tileir_bytecode",
            bytecode_version=version,
        )
    code = (folder / "add-13.3.tileir").read_bytes()
    (folder / "add.fatbin").write_bytes(tile_fatbin(toolkit, code))
    (folder / "add-plain.fatbin").write_bytes(tile_fatbin(toolkit, code, b"-compress=false"))
    command = [toolkit / "bin" / "tileiras", "--gpu-name=sm_90", folder / "add-13.1.tileir", "-o", folder / "add.cubin"]
    subprocess.run(command, check=True)


def tile_fatbin(toolkit: Path, code: bytes, *options: bytes) -> bytes:
    library = ctypes.CDLL(str(toolkit / "lib" / "libnvfatbin.so.13"))
    handle, size = ctypes.c_void_p(), ctypes.c_size_t()
    assert not library.nvFatbinCreate(ctypes.byref(handle), (ctypes.c_char_p * len(options))(*options), len(options))
    assert not library.nvFatbinAddTileIR(handle, code, ctypes.c_size_t(len(code)), b"add", b"-O3")
    assert not library.nvFatbinSize(handle, ctypes.byref(size))
    made = ctypes.create_string_buffer(size.value)
    assert not library.nvFatbinGet(handle, made)
    return made.raw


if __name__ == "__main__":
    if len(sys.argv) > 1:
        by_cuda_tile(Path(sys.argv[1]))
        sys.exit()
    by_toolkit()
    if shutil.which("nvcc") and str(probes.nvjitlink_version()) == "13.0":
        by_nvcc(OUT.parent)
