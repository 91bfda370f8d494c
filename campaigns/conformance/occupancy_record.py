"""Record what a driver answers about the occupancy of many kernels.

    python3 -m campaigns.conformance.occupancy_record OUT.json [LIBCUDA]

Standard library only. The kernels are PTX text that the driver compiles; they differ in registers, static shared
memory, local memory, launch bounds and clusters. Every kernel is asked the same questions in the same order, so the
file holds lists of answers alone, and the emulated driver is compared by running this program on it.
"""

import ctypes
import json
import os
import random
import sys
import time
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from campaigns.driver import Driver

#: CUfunction_attribute: max threads, shared, const, local, registers, max dynamic shared, carve-out, cluster must be
#: set, cluster width, non-portable cluster size allowed.
FUNCTION_ATTRIBUTES = (0, 1, 2, 3, 4, 8, 9, 10, 11, 14)
#: CUdevice_attribute numbers that the rules of occupancy read.
DEVICE_ATTRIBUTES = (1, 8, 10, 12, 16, 39, 75, 76, 81, 82, 97, 106, 111, 120)
MAX_DYNAMIC_SHARED, CARVEOUT, NON_PORTABLE_CLUSTER = 8, 9, 14
CLUSTER_DIMENSION = 4  # CUlaunchAttributeID


@dataclass(frozen=True)
class Kernel:
    """What a kernel is made from."""

    values: int  #: How many 32-bit values it keeps in registers at once.
    shared: int = 0  #: Bytes of static shared memory.
    directives: str = ""  #: Launch bounds.

    @property
    def name(self) -> str:
        """Its name in the PTX."""
        bounds = "".join(letter if letter.isalnum() else "_" for letter in self.directives)
        return f"k{self.values}_{self.shared}_{bounds}"


def kernels(arch: int) -> list[Kernel]:
    """Every kernel that is asked about."""
    counts = (1, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 56, 64, 72, 80, 88, 96, 112, 128, 160, 200, 236)
    sizes = (4, 1000, 1024, 4096, 12288, 20000, 32768, 49152)
    kernels = [Kernel(count) for count in counts]
    kernels += [Kernel(4, size) for size in sizes]
    kernels += [
        Kernel(count, size) for count, size in product((16, 40, 72, 128), (16, 3000, 8192, 16384, 24576, 40960))
    ]
    bounds = [".maxntid 1", ".maxntid 32", ".maxntid 100", ".maxntid 128,2", ".maxntid 256", ".maxntid 1024"]
    bounds += [".reqntid 64", ".reqntid 8,8,8", ".maxntid 256\n.minnctapersm 4", ".maxntid 512\n.minnctapersm 2"]
    bounds += [f".maxnreg {number}" for number in (24, 32, 40, 64, 128, 255)]
    kernels += [Kernel(count, size, bound) for bound in bounds for count, size in ((4, 0), (60, 2048), (150, 0))]
    if arch >= 90:
        clusters = [".maxclusterrank 2", ".maxclusterrank 4", ".explicitcluster\n.maxclusterrank 8"]
        clusters += [".explicitcluster\n.reqnctapercluster 2", ".explicitcluster\n.reqnctapercluster 4,2"]
        kernels += [Kernel(count, size, cluster) for cluster in clusters for count, size in ((4, 0), (80, 16384))]
    chance = random.Random(9)
    kernels += [Kernel(chance.randint(1, 230), 16 * chance.randint(1, 3000)) for _ in range(45)]
    return list(dict.fromkeys(kernels))


def ptx(arch: int) -> str:
    """The kernels as one module: volatile accesses keep every value alive between the loads and the stores."""
    lines = [f".version {'7.8' if arch <= 90 else '8.7'}", f".target sm_{arch}", ".address_size 64"]
    for kernel in kernels(arch):
        lines += [f".visible .entry {kernel.name}(.param .u64 out)", kernel.directives, "{"]
        lines += [f"  .reg .u32 %r<{kernel.values + 2}>;", "  .reg .u64 %rd<3>;", "  ld.param.u64 %rd1, [out];"]
        if kernel.shared:
            lines += [f"  .shared .align 16 .b8 room[{kernel.shared}];", "  mov.u32 %r0, room;"]
            lines += ["  st.volatile.shared.u8 [%r0], 1;"]
        order = range(1, kernel.values + 1)
        lines += [f"  ld.volatile.global.u32 %r{place}, [%rd1+{4 * place}];" for place in order]
        lines += [f"  st.volatile.global.u32 [%rd1+{4 * place}], %r{kernel.values + 1 - place};" for place in order]
        lines += ["  ret;", "}"]
    return "\n".join([*lines, ""])


def questions() -> list[tuple[Any, ...]]:
    """Every question that each kernel is asked, in this order: its kind, then its numbers."""
    blocks = (1, 31, 32, 33, 64, 96, 100, *range(128, 321, 32), 384, 416, 480, 512, 640, 768, 896, 992, 1024)
    asked: list[tuple[Any, ...]] = [("active", block, 0) for block in blocks]
    dynamic = (1, 100, 128, 1000, 4096, 8192, 16384, 33000, 48000, 49152, 49153, 100000, 232448)
    asked += [("active", block, size) for block, size in product((32, 128, 512), dynamic)]
    asked += [("active", block, 0) for block in (0, -1, 1025, 4096)]
    asked += [("flags", block, size, flags) for flags in (0, 1, 2) for block, size in ((128, 0), (1024, 4096))]
    asked += [("available", count, block) for count in (1, 2, 3, 4, 8, 16, 32) for block in (32, 128, 256, 1024)]
    asked += [("available", count, block) for count, block in ((0, 128), (-1, 128), (1, 0), (1, 1025), (33, 32))]
    asked += [("potential", size, limit) for size in (0, 1024, 20000, 49152) for limit in (0, 1, 100, 256, 512, 2048)]
    asked += [("callback", times, limit) for times in (1, 16, 48) for limit in (0, 512)]
    asked += [("set", CARVEOUT, 0), ("active", 128, 0), ("active", 256, 2048), ("available", 2, 128)]
    asked += [("set", CARVEOUT, 50), ("active", 128, 0), ("active", 256, 2048), ("potential", 1024, 0)]
    asked += [("available", 4, 128)]
    asked += [("set", CARVEOUT, 10), ("active", 32, 1024), ("active", 128, 16384), ("set", CARVEOUT, 100)]
    asked += [("active", 64, 8192), ("set", CARVEOUT, -1), ("cache", 2), ("active", 128, 4096), ("cache", 1)]
    asked += [("active", 128, 4096), ("available", 2, 256), ("cache", 3), ("active", 128, 4096), ("cache", 0)]
    for size in (0, 30000, 65536, 99000, 200000, 232448, 232449):
        asked += [("set", MAX_DYNAMIC_SHARED, size), ("active", 128, 20000), ("active", 256, size)]
        asked += [("available", 1, 128), ("potential", size, 0)]
    for _ in range(2):
        asked += [("cluster-size", block, size) for block in (1, 128, 1024) for size in (0, 16384, 100000)]
        asked += [("clusters", width, *block) for width in (1, 2, 3, 4, 8, 16) for block in ((128, 0), (512, 40000))]
        asked += [("set", NON_PORTABLE_CLUSTER, 1)]
    return asked


class _Attribute(ctypes.Structure):
    _fields_ = (("id", c_int), ("pad", c_int), ("value", c_uint * 16))


class _Config(ctypes.Structure):
    _fields_ = (
        *(("grid", c_uint * 3), ("block", c_uint * 3), ("shared", c_uint), ("stream", c_void_p)),
        *(("attributes", ctypes.POINTER(_Attribute)), ("count", c_uint)),
    )


_SharedOfBlock = ctypes.CFUNCTYPE(c_size_t, c_int)


def _config(width: int, block: int, shared: int) -> _Config:
    config = _Config(grid=(c_uint * 3)(96, 1, 1), block=(c_uint * 3)(block, 1, 1), shared=shared)
    if width:
        attribute = _Attribute(id=CLUSTER_DIMENSION)
        attribute.value[:3] = (width, 1, 1)
        config.attributes, config.count = ctypes.pointer(attribute), 1
    return config


def _answer(driver: Driver, function: int, question: tuple[Any, ...]) -> list[int]:
    """The code of one question, and the answer where the code is 0."""
    kind, *numbers = question
    values = [c_uint64() for _ in range({"set": 0, "cache": 0, "potential": 2, "callback": 2}.get(kind, 1))]
    if kind in ("potential", "callback"):
        first, limit = numbers
        callback = _SharedOfBlock(lambda block: block * first) if kind == "callback" else _SharedOfBlock()
        numbers = [callback, 0 if kind == "callback" else first, limit]
    elif kind in ("cluster-size", "clusters"):
        numbers = [byref(_config(*(0, *numbers)[-3:]))]
    code = driver.do(_CALLS[kind], *map(byref, values), function, *numbers)
    return [code, *([] if code else [value.value for value in values])]


_CALLS = {
    "active": "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "flags": "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
    "available": "cuOccupancyAvailableDynamicSMemPerBlock",
    **dict.fromkeys(("potential", "callback"), "cuOccupancyMaxPotentialBlockSize"),
    "set": "cuFuncSetAttribute",
    "cache": "cuFuncSetCacheConfig",
    "cluster-size": "cuOccupancyMaxPotentialClusterSize",
    "clusters": "cuOccupancyMaxActiveClusters",
}


def record(library: str = "libcuda.so.1") -> dict[str, Any]:
    """Every answer of a driver."""
    driver, name = Driver(library), ctypes.create_string_buffer(256)
    driver.start()
    driver.must("cuDeviceGetName", name, 256, 0)
    device = {attribute: _attribute(driver, "cuDeviceGetAttribute", attribute, 0) for attribute in DEVICE_ATTRIBUTES}
    arch = device[75] * 10 + device[76]
    module = driver.made("cuModuleLoadData", ptx(arch).encode())
    answers = []
    for kernel in kernels(arch):
        function = driver.made("cuModuleGetFunction", module, kernel.name.encode())
        attributes = [_attribute(driver, "cuFuncGetAttribute", number, function) for number in FUNCTION_ATTRIBUTES]
        answered = [_answer(driver, function, question) for question in questions()]
        answers.append({**asdict(kernel), "attributes": attributes, "answers": answered})
    version = driver.made("cuDriverGetVersion")
    return {"driver": version, "device": name.value.decode(), "attributes": device, "kernels": answers}


def _attribute(driver: Driver, call: str, number: int, handle: int) -> int:
    """An attribute, which may be negative."""
    value = c_int()
    driver.must(call, byref(value), number, handle)
    return value.value


def main() -> None:
    """Record to the file that is named first."""
    os.environ["CUDA_CACHE_DISABLE"] = "1"
    began = time.monotonic()
    recorded = record(*sys.argv[2:])
    head = {name: value for name, value in recorded.items() if name != "kernels"}
    rows = ",\n".join(json.dumps(kernel, separators=(",", ":")) for kernel in recorded["kernels"])
    Path(sys.argv[1]).write_text(f'{json.dumps(head)[:-1]}, "kernels": [\n{rows}\n]}}\n', encoding="utf-8")
    count = len(recorded["kernels"])
    print(f"{count} kernels, {len(questions())} questions each, {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
