"""The cuda stub on the emulated driver, which has the entry points of both generations under their own names."""

import json
from pathlib import Path

import pytest

from pytest_cudalink.linker import Program, ProgramOptions
from pytest_cudalink.stubs import c_source

PROGRAM = ("-m", "tests.emulator.programs.driver_stub")
SOURCE = 'extern "C" { __device__ int table[7]; __global__ void fill() { table[threadIdx.x] = 1; } }'


@pytest.fixture(scope="module")
def cuda_stub(once) -> Path:
    """The stub of the driver, built from this tree."""
    return once("cuda-stub", lambda folder: c_source.build_stubs(["cuda"], folder)) / "libstub_cuda.so"


def use(on_driver, version: str, stub: Path, folder: Path) -> tuple[dict, list[str]]:
    """What the program says, and the entry points that it called."""
    ptx, events = folder / "table.ptx", folder / "events.jsonl"
    with Program(SOURCE, "c++", ProgramOptions(arch="sm_90")) as program:
        ptx.write_bytes(program.compile("ptx").code)
    done = on_driver(version, *PROGRAM, str(stub), str(ptx), events=events)
    assert done.returncode == 0, done.stderr
    called = [json.loads(line) for line in events.read_text(encoding="utf-8").splitlines()]
    return json.loads(done.stdout), [event["call"] for event in called if "call" in event]


@pytest.mark.usefixtures("toolkit")
@pytest.mark.parametrize("version", ["13.0", "13.2"])
def test_exact_entry_points(version: str, on_driver, cuda_stub, tmp_path) -> None:
    """cuMemsetD32_v2 and cuModuleGetGlobal_v2 are called, not their 32-bit twins, which answer otherwise."""
    description, called = use(on_driver, version, cuda_stub, tmp_path)

    assert (description["version"], description["missing"], description["degraded"]) == (version, [], [])
    assert description["file"].endswith("/libcuda.so.1")
    assert description["words"] == ["0xdeadbeef"]
    size, address = description["global"]
    assert size == 7 * 4
    assert address > 2**32
    assert description["memory"] > 2**32, "a 32-bit entry point would have to be seen to cut the address"
    assert description["twins"] == {"cuMemsetD32": 201, "cuModuleGetGlobal": 201}
    assert description["error"] == "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"
    assert description["freed"] == [0, 0]
    # through the stub, and then the twins by their own names
    order = [name for name in called if name.startswith(("cuMemsetD32", "cuModuleGetGlobal"))]
    assert order == ["cuMemsetD32_v2", "cuModuleGetGlobal_v2", "cuMemsetD32", "cuModuleGetGlobal"]
