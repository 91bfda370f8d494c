"""Arguments of the driver API that need more than a word of the table; each function pushes or returns what it makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_cudalink.recorder.images import KERNELS

from .images import IMAGES

if TYPE_CHECKING:
    from .generate import Generator

# ruff: noqa: E501 (a line for a structure reads as a table)
HUGE = (1 << 60, (1 << 64) - 1, 1 << 63)
MIB = 1 << 20
FORMATS = {1: 1, 2: 2, 3: 4, 8: 1, 9: 2, 10: 4, 16: 2, 32: 4}
NODE_TYPES = (
    "kernel",
    "memcpy",
    "memset",
    "host",
    "child",
    "empty",
    "wait",
    "record",
    "",
    "",
    "alloc",
    "free",
    "memop",
    "cond",
)


def size(g: Generator) -> int:
    g.facts["size"] = found = g.number(
        (4096, 65536, MIB, 2 * MIB, 3 * MIB, 4096, 65536, 10000, 1000, 64, 1), (0, 0, *HUGE, 1 << 30)
    )
    return found


def small_size(g: Generator) -> int:
    g.facts["size"] = found = g.number((4, 4096, 65536, MIB, 2 * MIB, 5000), (0, *HUGE))
    return found


def vm_size(g: Generator) -> int:
    g.facts["size"] = found = g.number((2 * MIB, 2 * MIB, 2 * MIB, 4 * MIB), (0, 4096, MIB, 3 * MIB, 1 << 60))
    return found


def va_size(g: Generator) -> int:
    """The size of the pointer in front of it, or another."""
    sizes = [one.facts.get("size", 2 * MIB) for one in g.live.get("va", ()) if one.reference == g.call[1]]
    return g.number(sizes or (2 * MIB,), (0, 2 * MIB, 4 * MIB, 4096, 1 << 60))


def va_place(g: Generator) -> Any:
    reference = g.handle("va")
    return (
        f"{reference}+{g.pick((2 * MIB, 4096, 8 * MIB))}"
        if reference and g.wrong(0.2) and str(reference)[0] == "$"
        else reference
    )


def vmh_like(g: Generator) -> Any:
    """Memory as large as the range in front of it, when the call is to be valid."""
    found = g.of_type("vmh", size=g.call[2]) if g.careful else None
    return found.reference if found else g.handle("vmh")


def host(g: Generator) -> Any:
    if g.wrong(0.1):
        return 0
    alive = g.live.get("hptr")
    if alive and g.chance(0.3):
        found = g.pick(alive)
        room = found.facts.get("size", 64)
        g.facts["room"] = min(room, g.facts.get("room", room))
        return found.reference
    return f"@{g.pick((0, 4096, 65536, MIB))}"


def register(g: Generator) -> Any:
    """Host memory to register, which is then known by its address; its handle is no value that a call gives."""
    place = f"@{g.pick((0, 4096, 65536, MIB, 2 * MIB))}"
    if g.wrong(0.2):
        return g.pick((0, "@100", "$0"))
    handle = g.make("reg", 0)
    handle.reference = place
    return place


def dst(g: Generator) -> Any:
    reference, found = g.pointer()
    g.facts["room"] = found
    return _offset(g, reference, found)


def src(g: Generator) -> Any:
    reference, found = g.pointer()
    g.facts["room"] = min(found, g.facts.get("room", found))
    return _offset(g, reference, found)


def _offset(g: Generator, reference: Any, room: int) -> Any:
    if room >= 64 and isinstance(reference, str) and reference[0] == "$" and g.chance(0.1):
        g.facts["room"] = room - 4
        return f"{reference}+4"
    return reference


def count(g: Generator) -> int:
    room = min(g.facts.get("room", 64), MIB)
    return g.number((room, max(room // 2, 1), min(room, 4), min(room, 16)), (0, 0, room + 1, 1 << 60))


def count2(g: Generator) -> int:
    return max(count(g) // 2, 1)


def count4(g: Generator) -> int:
    return max(count(g) // 4, 1)


def inside(g: Generator) -> Any:
    reference, found = g.pointer(("dptr", "mptr", "aptr", "va", "hptr"))
    return _offset(g, reference, found)


def free(g: Generator) -> Any:
    reference, _ = g.pointer(("dptr", "mptr"))
    g.gone += [one for kind in ("dptr", "mptr") for one in g.live.get(kind, ()) if one.reference == reference]
    return _offset(g, reference, 64) if not g.careful else reference


def device_attribute(g: Generator) -> int:
    machine = (33, 34, 50, 123)  # PCI and the NUMA node of the host belong to a machine
    found = g.number(range(1, 146), (0, 146, 150, 200, -1))
    return 1 if found in machine else found


def atomics(g: Generator) -> Any:
    return ["L", "I", [g.number((0, 1, 2, 5), (99,))]]


def properties_out(g: Generator) -> Any:
    return [
        "S",
        "CUdevprop",
        {},
        [
            "maxThreadsPerBlock",
            "maxThreadsDim[0]",
            "maxGridSize[0]",
            "sharedMemPerBlock",
            "totalConstantMemory",
            "SIMDWidth",
            "memPitch",
            "regsPerBlock",
            "clockRate",
            "textureAlign",
        ],
    ]


def pci_text(g: Generator) -> Any:
    return g.pick(("'ffff:ff:1f.0", "'", "'nonsense", 0))


def pci_out(g: Generator) -> Any:
    return 0 if g.wrong(0.3) else ["o", "X", 32]


def primary_release(g: Generator) -> Any:
    return g.number((0,), (1, -1))


def ctx_params(g: Generator) -> Any:
    if g.chance(0.75):
        return 0
    if g.chance(0.5):
        return ["S", "CUctxCreateParams", {"execAffinityParams": 0}]
    return [
        "S",
        "CUctxCreateParams",
        {
            "execAffinityParams": [
                "S",
                "CUexecAffinityParam",
                {"type": g.number((0,), (1,)), "param.smCount.val": g.pick((8, 1, 132, 0, 500))},
            ],
            "numExecAffinityParams": g.number((1,), (0, 2)),
        },
    ]


def affinity(g: Generator) -> Any:
    return g.pick((0, 0, ["S", "CUexecAffinityParam", {"type": 0, "param.smCount.val": 8}]))


def affinity_out(g: Generator) -> Any:
    return ["S", "CUexecAffinityParam", {}, ["type", "param.smCount.val"]]


def image(g: Generator) -> Any:
    found = g.number((0, 0, 0, 0, 1, 6, 6, 9), tuple(range(2, len(IMAGES))))
    g.facts["image"] = IMAGES[found]
    return 0 if g.wrong(0.1) else "!" + IMAGES[found]


def ptx_image(g: Generator) -> Any:
    g.facts["image"] = name = g.pick(
        ("program", "other", "program", "broken", "text") if not g.careful else ("program", "other")
    )
    return "!" + name


def ptx_size(g: Generator) -> int:
    from .images import image as load

    return len(load(g.facts["image"]))


def path(g: Generator) -> Any:
    return g.pick(("'/nonexistent/file.cubin", "'", 0, "'/dev/null", "'/tmp"))


def dot_path(g: Generator) -> Any:
    return g.pick((0, "'/nonexistent/folder/graph.dot")) if g.wrong() else "'/tmp/cudalink-programs.dot"


def text(g: Generator) -> Any:
    return g.pick(("'name", "'other", 0))


_JIT: tuple[tuple[list[int], list[int]], ...] = (
    ([], []),
    ([0], [32]),
    ([7], [4]),
    ([7, 12], [3, 0]),
    ([9], [90]),
    ([10], [0]),
    ([14], [1]),
    ([1], [128]),
    ([7], [9]),
    ([9], [75]),
    ([99], [0]),
)


def _jit(g: Generator) -> tuple[list[int], list[int]]:
    if "jit" not in g.facts:
        g.facts["jit"] = g.pick(_JIT[:6] if g.careful else _JIT)
    found: tuple[list[int], list[int]] = g.facts["jit"]
    return found


def jit_count(g: Generator) -> int:
    return len(_jit(g)[0])


def jit_keys(g: Generator) -> Any:
    return ["L", "I", _jit(g)[0]] if _jit(g)[0] else 0


def jit_values(g: Generator) -> Any:
    return ["L", "Q", _jit(g)[1]] if _jit(g)[0] else 0


def _library(g: Generator) -> tuple[list[int], list[int]]:
    if "options" not in g.facts:
        g.facts["options"] = g.pick(
            (([], []), ([1], [0]), ([1], [1])) if g.careful else (([1], [1]), ([2], [0]), ([0], [0]))
        )
    found: tuple[list[int], list[int]] = g.facts["options"]
    return found


def lib_count(g: Generator) -> int:
    return len(_library(g)[0])


def lib_keys(g: Generator) -> Any:
    return ["L", "I", _library(g)[0]] if _library(g)[0] else 0


def lib_values(g: Generator) -> Any:
    return ["L", "Q", _library(g)[1]] if _library(g)[0] else 0


def _image_of(g: Generator) -> str:
    """The image of the module or library that the call just named."""
    for one in (*g.live.get("mod", ()), *g.live.get("lib", ())):
        if one.reference == g.call[-1]:
            return str(one.facts.get("image", "program"))
    return "program"


def kernel_name(g: Generator) -> Any:
    own = {
        "program": tuple(KERNELS),
        "linked": ("apply_transform",),
        "older": ("apply_transform",),
        "undefined": ("calls",),
    }
    names = own.get(_image_of(g), ("plain",))
    name = g.pick(("missing", "", "answer", "twice")) if g.wrong(0.4) else g.pick(names)
    g.facts["kernel"] = name
    return 0 if g.wrong(0.15) else "'" + name


def variable(g: Generator) -> Any:
    own = {"program": ("answer", "factor", "zeros"), "other": ("table",)}
    name = g.pick(("missing", "", "small")) if g.wrong(0.4) else g.pick(own.get(_image_of(g), ("answer",)))
    return 0 if g.wrong(0.15) else "'" + name


def function_attribute(g: Generator) -> int:
    return g.number((*range(16), 8, 8, 9, 14), (16, 17, -1, 99))


def attribute_value(g: Generator) -> int:
    return g.number((0, 1, 2, 50, 100, 1024, 49152, 65536), (-1, -2, 101, 232448, 232449, 1 << 20, 3))


def float(g: Generator) -> Any:  # noqa: A001 (the name of a type in the table)
    return ["F", 1.5]


def callback(g: Generator) -> Any:
    return 0 if g.wrong() else "&sched_yield"


def gate(g: Generator) -> str:
    """The next gate of the program: a word of pinned memory that is 0 until the program writes 1."""
    return f"{g.area}+{8 * len(g.gates)}"


def word(g: Generator) -> str:
    """A word of pinned memory that nothing else writes."""
    return f"{g.area}+{1024 + 4 * len(g.program)}"


def counter(g: Generator) -> str:
    """A semaphore of the C library, whose first word counts how often it was posted."""
    return f"{g.area}+{4096 + 32 * len(g.program)}"


def post(g: Generator) -> Any:
    return 0 if g.wrong(0.1) else "&sem_post"


def constant(g: Generator) -> str:
    """Device memory that the program fills once."""
    return g.filled


_POINTER = {
    1: "H",
    2: "I",
    3: "H",
    4: "H",
    5: "X16",
    6: "I",
    7: "x",
    8: "I",
    9: "i",
    10: "I",
    11: "H",
    12: "Q",
    13: "I",
    14: "Q",
    15: "I",
    16: "I",
    17: "H",
    18: "Q",
    19: "H",
    20: "x",
    21: "I",
}


def _pointer_out(attribute: int) -> Any:
    letter = _POINTER.get(attribute, "Q")
    return ["o", "X", 16] if letter == "X16" else ["o", letter]


def _any_pointer(g: Generator) -> Any:
    kinds = [kind for kind in ("dptr", "mptr", "aptr", "va", "hptr", "reg") if g.live.get(kind)] or ["dptr"]
    reference, room = g.pointer((g.pick(kinds),))
    if g.wrong(0.3):
        return g.pick(("@0", "@4096", 0, 4096))
    return _offset(g, reference, room) if str(reference)[0] == "$" else reference


def pointer_attribute(g: Generator) -> None:
    attribute = g.number((*range(1, 22), 2, 9, 11, 12), (0, 22, 99, -1))
    g.push(0 if g.wrong(0.05) else _pointer_out(attribute))
    g.push(attribute)
    g.push(_any_pointer(g))


def set_pointer_attribute(g: Generator) -> Any:
    return ["L", "I", [g.pick((0, 1))]]


def pointer_attributes(g: Generator) -> None:
    several = [g.number((1, 2, 3, 4, 6, 8, 9, 11, 12, 13), (0, 99)) for _ in range(3)]
    g.push(g.number((3,), (0, 1)))
    g.push(["L", "I", several])
    g.push(["L", "Q", [_pointer_out(one) for one in several]])
    g.push(_any_pointer(g))


# copies


def copy2d(g: Generator) -> Any:
    fields: dict[str, Any] = {}
    for side in ("src", "dst"):
        _side(g, fields, side)
    width = g.number((4, 16, 32, 64), (0, 1, 1 << 40))
    for side in ("src", "dst"):
        if fields[f"{side}MemoryType"] != 3 and g.chance(0.7):
            fields[f"{side}Pitch"] = g.number((64, 128), (1, 8))
    return ["S", "CUDA_MEMCPY2D", {**fields, "WidthInBytes": width, "Height": g.number((1, 1, 2, 4), (0, 1000000))}]


def _side(g: Generator, fields: dict[str, Any], side: str, prefix: str = "") -> None:
    kind = g.number((1, 2, 2, 4) + ((3, 3, 3) if g.live.get("arr") else ()), (0, 5, 99))
    fields[f"{prefix}{side}MemoryType"] = kind
    if kind == 1:
        fields[f"{prefix}{side}Host"] = host(g)
    elif kind == 3:
        fields[f"{prefix}{side}Array"] = g.handle("arr")
    else:
        fields[f"{prefix}{side}Device"] = g.pointer()[0]
    if g.wrong(0.2):
        fields[f"{prefix}{side}XInBytes"] = g.pick((4, 1, 1 << 40))
        fields[f"{prefix}{side}Y"] = g.pick((1, 1000000))


def _copy3d(g: Generator, prefix: str = "") -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for side in ("src", "dst"):
        _side(g, fields, side, prefix)
        if fields[f"{prefix}{side}MemoryType"] != 3 and g.chance(0.7):
            fields[f"{prefix}{side}Pitch"] = g.number((64, 128), (1, 8))
            fields[f"{prefix}{side}Height"] = g.number((2, 4), (0, 1))
        if g.wrong(0.1):
            fields[f"{prefix}{side}LOD"] = 1
    fields[f"{prefix}WidthInBytes"] = g.number((4, 16, 32, 64), (0, 1, 1 << 40))
    fields[f"{prefix}Height"] = g.number((1, 1, 2), (0, 1000000))
    fields[f"{prefix}Depth"] = g.number((1, 1, 1, 2), (0, 1000000))
    return fields


def copy3d(g: Generator) -> Any:
    return 0 if g.wrong(0.05) else ["S", "CUDA_MEMCPY3D", _copy3d(g)]


def copy3dpeer(g: Generator) -> Any:
    return ["S", "CUDA_MEMCPY3D_PEER", {**_copy3d(g), "srcContext": g.handle("ctx"), "dstContext": g.handle("ctx")}]


def dst_list(g: Generator) -> Any:
    return ["L", "Q", [g.pointer()[0], g.pointer()[0]]]


src_list = dst_list


def managed_list(g: Generator) -> Any:
    return ["L", "Q", [g.handle("mptr"), g.handle("mptr")]]


def count_list(g: Generator) -> Any:
    return ["L", "Q", [g.number((4, 16, 64), (0, 1 << 40)), g.pick((4, 64))]]


def zero_list(g: Generator) -> Any:
    return ["L", "Q", [0, 1]] if g.chance(0.9) else ["L", "Q", [1, 0]]


def copy_attributes(g: Generator) -> Any:
    one = ["S", "CUmemcpyAttributes", {"srcAccessOrder": g.number((1, 2, 3), (0, 9)), "flags": g.number((0,), (1, 7))}]
    return ["A", [one, one]]


def copy3dbatch(g: Generator) -> Any:
    return [
        "S",
        "CUDA_MEMCPY3D_BATCH_OP",
        {
            "src.type": 1,
            "src.op.ptr.ptr": g.pointer()[0],
            "dst.type": g.number((1,), (0, 3)),
            "dst.op.ptr.ptr": g.pointer()[0],
            "extent.width": g.number((4, 16), (0, 1 << 40)),
            "extent.height": 1,
            "extent.depth": 1,
            "srcAccessOrder": g.number((1, 2, 3), (0, 9)),
        },
    ]


def decompress(g: Generator) -> Any:
    return ["S", "CUmemDecompressParams", {"srcNumBytes": 0, "dstNumBytes": 0, "algo": g.pick((0, 1, 9))}]


# pools and virtual memory


def location(g: Generator) -> Any:
    kind = g.number((1, 1, 1, 1, 2, 3), (0, 4, 9))
    return (
        0 if g.wrong(0.1) else ["S", "CUmemLocation", {"type": kind, "id": 0 if not g.wrong() else g.pick((1, -1, 99))}]
    )


def locv(g: Generator) -> int:
    kind = g.number((1, 1, 1, 2, 3), (0, 4, 9))
    return kind | (0 if not g.wrong() else g.pick((1, 99, 0xFFFFFFFF))) << 32


def access(g: Generator) -> Any:
    kind = g.number((1, 1, 1, 1, 2), (0, 3, 9))
    return (
        0
        if g.wrong(0.1)
        else [
            "S",
            "CUmemAccessDesc",
            {
                "location.type": kind,
                "location.id": 0 if not g.wrong() else g.pick((1, -1, 99)),
                "flags": g.number((3, 3, 3, 1, 0), (2, 4, 9)),
            },
        ]
    )


def _props(g: Generator, prefix: str = "") -> dict[str, Any]:
    return {
        f"{prefix}allocType": g.number((1,), (0, 2, 9)),
        f"{prefix}handleTypes": g.number((0, 0, 0, 1), (2, 4, 8, 3, 16)),
        f"{prefix}location.type": g.number((1, 1, 1, 1, 2, 3), (0, 4, 9)),
        f"{prefix}location.id": g.number((0,), (1, -1, 99)),
        f"{prefix}maxSize": g.number((0, 0, 0, 2 * MIB, 32 * MIB, 1000), (1 << 60,)),
        f"{prefix}usage": g.number((0,), (1, 2, 7)),
    }


def pool_props(g: Generator) -> Any:
    return 0 if g.wrong(0.1) else ["S", "CUmemPoolProps", _props(g)]


def pool_attribute(g: Generator) -> None:
    attribute = g.number(range(1, 9), (0, 9, 10, -1))
    g.push(attribute)
    # a current or high amount depends on what the driver keeps
    g.push(["o", "i"] if attribute in (1, 2, 3) else ["o", "Q"])


def set_pool_attribute(g: Generator) -> None:
    attribute = g.number((1, 2, 3, 4, 4, 6, 8), (0, 5, 7, 9))
    g.push(attribute)
    g.push(
        [
            "L",
            "Q",
            [
                g.pick((0, 1))
                if attribute in (1, 2, 3)
                else g.number((0, 65536, (1 << 64) - 1) if attribute == 4 else (0,), (1, 7))
            ],
        ]
    )


def export_blob(g: Generator) -> Any:
    return ["L", "Q", [0] * 8]


def alloc_prop(g: Generator) -> Any:
    return (
        0
        if g.wrong(0.05)
        else [
            "S",
            "CUmemAllocationProp",
            {
                "type": g.number((1,), (0, 2, 9)),
                "requestedHandleTypes": g.number((0, 0, 1), (2, 4, 8, 16)),
                "location.type": g.number((1, 1, 1, 1, 2, 3), (0, 4, 9)),
                "location.id": g.number((0,), (1, -1, 99)),
                "allocFlags.compressionType": g.number((0, 0, 0, 1), (2,)),
                "allocFlags.gpuDirectRDMACapable": g.number((0, 0, 0, 1), (2,)),
                "allocFlags.usage": g.number((0,), (1, 2, 7)),
            },
        ]
    )


def alloc_prop_out(g: Generator) -> Any:
    return [
        "S",
        "CUmemAllocationProp",
        {},
        [
            "type",
            "requestedHandleTypes",
            "location.type",
            "location.id",
            "allocFlags.compressionType",
            "allocFlags.gpuDirectRDMACapable",
            "allocFlags.usage",
        ],
    ]


def multicast(g: Generator) -> Any:
    return [
        "S",
        "CUmulticastObjectProp",
        {
            "numDevices": g.number((1, 2), (0, 99)),
            "size": g.number((2 * MIB,), (0, 1)),
            "handleTypes": g.number((0, 1), (99,)),
            "flags": g.number((0,), (1,)),
        },
    ]


def map_info(g: Generator) -> Any:
    return [
        "S",
        "CUarrayMapInfo",
        {
            "resourceType": g.pick((0, 1, 9)),
            "resource.array": g.handle("arr"),
            "memOperationType": g.pick((1, 2, 9)),
            "memHandle.memHandle": g.handle("vmh"),
            "deviceBitMask": 1,
        },
    ]


def managed_size(g: Generator) -> int:
    sizes = [one.facts.get("size", 4096) for one in g.live.get("mptr", ()) if one.reference in g.call]
    return g.number(sizes or (4096,), (0, 1, 4096, 1 << 40))


_RANGE = {1: "i", 2: "i", 3: "i", 4: "i", 5: "i", 6: "i", 7: "i", 8: "i"}


def range_attribute(g: Generator) -> None:
    attribute = g.number(tuple(_RANGE), (0, 9, 99))
    many = attribute == 3 and g.chance(0.7)
    g.push(["o", "i", 4] if many else ["o", "i"])
    g.push(16 if many else g.number((4,), (0, 3, 8)))
    g.push(attribute)


def range_attributes(g: Generator) -> None:
    several = [g.number((1, 2, 4, 5, 6), (0, 9)) for _ in range(2)]
    g.push(["L", "Q", [["o", "i"], ["o", "i"]]])
    g.push(["L", "Q", [4, g.number((4,), (0, 3))]])
    g.push(["L", "I", several])
    g.push(g.number((2,), (0, 1)))


# arrays


def array_desc(g: Generator) -> Any:
    return (
        0
        if g.wrong(0.05)
        else [
            "S",
            "CUDA_ARRAY_DESCRIPTOR",
            {
                "Width": g.number((16, 64, 100, 1), (0, 1 << 20, 1 << 40)),
                "Height": g.number((0, 0, 4, 16, 64), (1 << 20,)),
                "Format": g.number((*FORMATS, 32, 1), (0, 4, 77, 0x91, 0xC0, 0xB0)),
                "NumChannels": g.number((1, 2, 4), (0, 3, 5)),
            },
        ]
    )


def _array3d(g: Generator) -> dict[str, Any]:
    flags = g.number((0, 0, 0, 1, 2, 4, 6, 5), (7, 8, 16, 32, 64, 128, 256, 1 << 20))
    width = g.number((16, 64, 32), (0, 1 << 20))
    height = width if flags & 4 and not g.wrong() else g.number((0, 0, 4, 16, 64) if flags != 8 else (16,), (1 << 20,))
    depth = g.number((6,) if flags & 4 else (1, 3) if flags & 1 else (0, 0, 4), (0, 1, 7, 1 << 20))
    if depth and not height and not flags & 1 and g.careful:
        height = 4
    return {
        "Width": width,
        "Height": height,
        "Depth": depth if flags & 5 or height else 0,
        "Format": g.number((*FORMATS, 32, 1), (0, 4, 77, 0x91, 0xC0, 0xB0)),
        "NumChannels": g.number((1, 2, 4), (0, 3, 5)),
        "Flags": flags,
    }


def array3d_desc(g: Generator) -> Any:
    return 0 if g.wrong(0.05) else ["S", "CUDA_ARRAY3D_DESCRIPTOR", _array3d(g)]


mipmap_desc = array3d_desc


def array_desc_out(g: Generator) -> Any:
    return ["S", "CUDA_ARRAY_DESCRIPTOR", {}, ["Width", "Height", "Format", "NumChannels"]]


def array3d_desc_out(g: Generator) -> Any:
    return ["S", "CUDA_ARRAY3D_DESCRIPTOR", {}, ["Width", "Height", "Depth", "Format", "NumChannels", "Flags"]]


def sparse_out(g: Generator) -> Any:
    return [
        "S",
        "CUDA_ARRAY_SPARSE_PROPERTIES",
        {},
        ["tileExtent.width", "tileExtent.height", "tileExtent.depth", "miptailFirstLevel", "miptailSize", "flags"],
    ]


def requirements_out(g: Generator) -> Any:
    return ["S", "CUDA_ARRAY_MEMORY_REQUIREMENTS", {}, ["size", "alignment"]]


def resource_desc(g: Generator) -> Any:
    kind = g.number((0, 0, 0, 1, 2, 3), (4, 9))
    fields: dict[str, Any] = {"resType": kind, "flags": g.number((0,), (1,))}
    if kind == 1:
        fields["res.mipmap.hMipmappedArray"] = g.handle("mip")
    elif kind == 2:
        fields.update(
            {
                "res.linear.devPtr": g.pointer()[0],
                "res.linear.format": g.number(tuple(FORMATS), (0, 77)),
                "res.linear.numChannels": g.number((1, 2, 4), (0, 3)),
                "res.linear.sizeInBytes": g.number((16, 64), (0, 1, 1 << 40)),
            }
        )
    elif kind == 3:
        fields.update(
            {
                "res.pitch2D.devPtr": g.pointer()[0],
                "res.pitch2D.format": g.number(tuple(FORMATS), (0, 77)),
                "res.pitch2D.numChannels": g.number((1, 2, 4), (0, 3)),
                "res.pitch2D.width": g.number((4, 8), (0, 1 << 30)),
                "res.pitch2D.height": g.number((1, 2), (0, 1 << 30)),
                "res.pitch2D.pitchInBytes": g.number((32, 64, 512), (0, 1, 33)),
            }
        )
    else:
        fields["res.array.hArray"] = g.handle("arr")
    return 0 if g.wrong(0.05) else ["S", "CUDA_RESOURCE_DESC", fields]


def texture_desc(g: Generator) -> Any:
    return (
        0
        if g.wrong(0.1)
        else [
            "S",
            "CUDA_TEXTURE_DESC",
            {
                "addressMode[0]": g.number((0, 1, 2, 3), (4, -1)),
                "addressMode[1]": g.number((0, 1, 2, 3), (4,)),
                "addressMode[2]": g.number((0, 1), (9,)),
                "filterMode": g.number((0, 1), (2,)),
                "flags": g.number((0, 1, 2, 3, 16, 32), (4, 64, 1 << 20)),
                "maxAnisotropy": g.number((0, 1, 16), (17, -1)),
                "mipmapFilterMode": g.number((0, 1), (2,)),
                "maxMipmapLevelClamp": g.pick((0.0, 4.0)),
                "borderColor[0]": g.pick((0.0, 1.0)),
            },
        ]
    )


def view_desc(g: Generator) -> Any:
    if g.chance(0.8):
        return 0
    return [
        "S",
        "CUDA_RESOURCE_VIEW_DESC",
        {
            "format": g.number((0, 1, 5, 0x15), (99,)),
            "width": g.pick((16, 64)),
            "height": g.pick((0, 4, 16)),
            "depth": 0,
            "lastMipmapLevel": g.pick((0, 1)),
            "lastLayer": g.pick((0, 1)),
        },
    ]


def resource_out(g: Generator) -> Any:
    return ["S", "CUDA_RESOURCE_DESC", {}, ["resType", "res.array.hArray:H", "flags"]]


def texture_out(g: Generator) -> Any:
    return [
        "S",
        "CUDA_TEXTURE_DESC",
        {},
        [
            "addressMode[0]",
            "addressMode[1]",
            "addressMode[2]",
            "filterMode",
            "flags",
            "maxAnisotropy",
            "mipmapFilterMode",
        ],
    ]


def view_out(g: Generator) -> Any:
    return [
        "S",
        "CUDA_RESOURCE_VIEW_DESC",
        {},
        ["format", "width", "height", "depth", "firstMipmapLevel", "lastMipmapLevel", "firstLayer", "lastLayer"],
    ]


def tensor_map(g: Generator) -> Any:
    return ["L", "Q", [0] * 16]


def _tensor(g: Generator) -> int:
    rank = g.number((1, 2, 3), (0, 6))
    g.push(["o", "X", 128])
    g.push(g.number((0, 1, 2, 6, 7, 9), (13, 16, 99, -1)))
    g.push(rank)
    g.push(g.pointer()[0] if not g.wrong(0.2) else g.pick((0, 8, "@4")))
    g.push(["L", "Q", [g.number((16, 64, 128), (0, 1 << 33)) for _ in range(5)]])
    g.push(["L", "Q", [g.number((256, 1024), (0, 1, 8, 1 << 41)) for _ in range(5)]])
    return rank


def _tensor_end(g: Generator) -> None:
    g.push(["L", "I", [g.number((1,), (0, 9)) for _ in range(5)]])
    for valid, invalid in (((0, 0, 1, 2), (3,)), ((0, 0, 1, 2, 3), (4, 9)), ((0, 1, 2, 3), (4,)), ((0, 1), (2,))):
        g.push(g.number(valid, invalid))


def tensor_tiled(g: Generator) -> None:
    _tensor(g)
    g.push(["L", "I", [g.number((4, 8, 16), (0, 257)) for _ in range(5)]])
    _tensor_end(g)


def tensor_im2col(g: Generator) -> None:
    _tensor(g)
    g.push(["L", "i", [0] * 3])
    g.push(["L", "i", [g.pick((0, -1, 1))] * 3])
    g.push(g.number((4, 16), (0, 257)))
    g.push(g.number((4, 16), (0, 1025)))
    _tensor_end(g)


def ipc_blob(g: Generator) -> Any:
    return ["M", 64]


# streams, graphs


_STREAM = {
    1: (
        {"accessPolicyWindow.num_bytes": 0},
        ["accessPolicyWindow.num_bytes", "accessPolicyWindow.hitProp", "accessPolicyWindow.missProp"],
    ),
    2: ({"cooperative": 1}, ["cooperative"]),
    3: ({"syncPolicy": 2}, ["syncPolicy"]),
    4: ({"clusterDim.x": 1, "clusterDim.y": 1, "clusterDim.z": 1}, ["clusterDim.x", "clusterDim.y", "clusterDim.z"]),
    8: ({"priority": -1}, ["priority"]),
    9: (
        {"memSyncDomainMap.default_": 0, "memSyncDomainMap.remote": 1},
        ["memSyncDomainMap.default_", "memSyncDomainMap.remote"],
    ),
    10: ({"memSyncDomain": 0}, ["memSyncDomain"]),
}


def stream_attribute(g: Generator) -> None:
    key = g.number((1, 3, 8, 9, 10), (0, 2, 4, 5, 99))
    g.push(key)
    g.push(0 if g.wrong(0.1) else ["S", "CUlaunchAttributeValue", {}, _STREAM.get(key, _STREAM[2])[1]])


def set_stream_attribute(g: Generator) -> None:
    key = g.number((1, 3, 8, 9, 10), (0, 2, 4, 5, 99))
    fields = {name: g.number((value, 0, 1), (7, -1)) for name, value in _STREAM.get(key, _STREAM[2])[0].items()}
    g.push(key)
    g.push(0 if g.wrong(0.1) else ["S", "CUlaunchAttributeValue", fields])


def mode(g: Generator) -> Any:
    return ["io", "I", g.number((0, 1, 2), (3, -1))]


def _graph_here(g: Generator) -> str | None:
    """The graph that the call in the making names."""
    for one in g.live.get("graph", ()):
        if one.reference in g.call:
            return one.reference
    return None


def _node(g: Generator, kind: str = "") -> Any:
    """A node, of the graph that the call names when there is one."""
    if g.careful:
        graph = _graph_here(g)
        found = g.of_type("node", **({"graph": graph} if graph else {}), **({"type": kind} if kind else {}))
        if found:
            return found.reference
    return g.handle("node")


def node(g: Generator, kind: str) -> Any:
    return _node(g, kind)


def one_node(g: Generator) -> Any:
    return ["L", "Q", [_node(g)]]


def deps(g: Generator) -> Any:
    g.facts["graph"] = graph = _graph_here(g)
    g.facts["type"] = _NODE_OF.get(g.call[0], "")
    nodes = [one.reference for one in g.live.get("node", ()) if one.facts.get("graph") == graph]
    several: list[Any] = []
    if nodes and g.chance(0.6):
        several = [g.pick(nodes)]
        other = g.pick(nodes)
        if g.chance(0.3) and (other not in several or not g.careful):
            several.append(other)
    if g.wrong(0.15):
        several = [g.handle("node")]
    g.facts["deps"] = len(several)
    return ["L", "Q", several] if several else 0


_NODE_OF = {
    "cuGraphAddEmptyNode": "empty", "cuGraphAddMemsetNode": "memset", "cuGraphAddMemcpyNode": "memcpy",
    "cuGraphAddHostNode": "host", "cuGraphAddChildGraphNode": "child", "cuGraphAddEventRecordNode": "record",
    "cuGraphAddEventWaitNode": "wait", "cuGraphAddKernelNode_v2": "kernel", "cuGraphAddMemAllocNode": "alloc",
    "cuGraphAddMemFreeNode": "free", "cuGraphAddBatchMemOpNode": "memop",
}  # fmt: skip


def deps_count(g: Generator) -> int:
    return g.number((g.facts.get("deps", 0),), (0,)) if not g.wrong(0.05) else 1


def edge_data(g: Generator) -> Any:
    return (
        0
        if g.chance(0.9) or g.facts.get("deps", 1) != 1
        else ["S", "CUgraphEdgeData", {"from_port": g.number((0,), (1, 2)), "type": g.number((0,), (1, 2))}]
    )


def nodes_out(g: Generator) -> None:
    if g.chance(0.4):
        g.push(0)
    else:
        g.push(["o", "H", 4])
    g.push(0 if g.wrong(0.1) else ["io", "Q", g.number((4, 4, 2), (0, 1))])


def nodes_v2_out(g: Generator) -> None:
    empty = g.chance(0.4)
    g.push(0 if empty else ["o", "H", 4])
    g.push(0 if empty or g.chance(0.6) else ["o", "B", 32])
    g.push(0 if g.wrong(0.1) else ["io", "Q", g.number((4, 4, 2), (0, 1))])


def edges_out(g: Generator) -> None:
    empty = g.chance(0.4)
    g.push(0 if empty else ["o", "H", 4])
    g.push(0 if empty or g.wrong(0.1) else ["o", "H", 4])
    g.push(0 if g.wrong(0.1) else ["io", "Q", g.number((4, 4, 2), (0, 1))])


def edges_v2_out(g: Generator) -> None:
    empty = g.chance(0.4)
    g.push(0 if empty else ["o", "H", 4])
    g.push(0 if empty or g.wrong(0.1) else ["o", "H", 4])
    g.push(0 if empty or g.chance(0.6) else ["o", "B", 32])
    g.push(0 if g.wrong(0.1) else ["io", "Q", g.number((4, 4, 2), (0, 1))])


def _memset(g: Generator, prefix: str = "") -> dict[str, Any]:
    return {
        f"{prefix}dst": g.pointer()[0],
        f"{prefix}pitch": g.number((0, 64, 512), (1,)),
        f"{prefix}value": g.pick((0, 7, 127, 4660)),
        f"{prefix}elementSize": g.number((1, 2, 4), (0, 3, 8)),
        f"{prefix}width": g.number((1, 4, 8), (0, 1 << 40)),
        f"{prefix}height": g.number((1, 1, 2), (0, 1000000)),
    }


def memset_params(g: Generator) -> Any:
    return 0 if g.wrong(0.05) else ["S", "CUDA_MEMSET_NODE_PARAMS", _memset(g)]


def memset_out(g: Generator) -> Any:
    return ["S", "CUDA_MEMSET_NODE_PARAMS", {}, ["dst:H", "pitch", "value", "elementSize", "width", "height"]]


def memcpy_out(g: Generator) -> Any:
    return [
        "S",
        "CUDA_MEMCPY3D",
        {},
        [
            "srcMemoryType",
            "srcDevice:H",
            "srcHost:H",
            "srcPitch",
            "srcHeight",
            "dstMemoryType",
            "dstDevice:H",
            "dstHost:H",
            "dstPitch",
            "dstHeight",
            "WidthInBytes",
            "Height",
            "Depth",
        ],
    ]


def host_params(g: Generator) -> Any:
    return 0 if g.wrong(0.05) else ["S", "CUDA_HOST_NODE_PARAMS", {"fn": callback(g), "userData": g.pick((0, 7))}]


def host_out(g: Generator) -> Any:
    return ["S", "CUDA_HOST_NODE_PARAMS", {}, ["userData"]]


def _kernel(g: Generator, prefix: str = "") -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if g.chance(0.7):
        fields[f"{prefix}func"] = reference = g.handle("fun")
    else:
        fields[f"{prefix}kern"] = reference = g.handle("ker")
    for name in ("gridDimX", "gridDimY", "gridDimZ"):
        fields[prefix + name] = g.number((1, 1, 4), (0, 65536, 1 << 31))
    for name in ("blockDimX", "blockDimY", "blockDimZ"):
        fields[prefix + name] = g.number(
            (64, 32) if name == "blockDimX" else (1,) if name == "blockDimZ" else (1, 2), (0, 1025, 65)
        )
    fields[f"{prefix}sharedMemBytes"] = g.number((0, 0, 1024), (49153, MIB))
    fields[f"{prefix}kernelParams"] = parameters(g, reference)
    return fields


def parameters(g: Generator, reference: Any) -> Any:
    """What the kernel behind a handle takes."""
    name = ""
    for kind in ("fun", "ker"):
        for one in g.live.get(kind, ()):
            if one.reference == reference:
                name = one.facts.get("kernel", "")
    if g.wrong(0.15) or not KERNELS.get(name):
        return 0
    return ["P", [g.pointer(("dptr",))[0], 1, 2]]


def kernel_params(g: Generator) -> Any:
    return 0 if g.wrong(0.05) else ["S", "CUDA_KERNEL_NODE_PARAMS", _kernel(g)]


def kernel_out(g: Generator) -> Any:
    return [
        "S",
        "CUDA_KERNEL_NODE_PARAMS",
        {},
        [
            "func:H",
            "gridDimX",
            "gridDimY",
            "gridDimZ",
            "blockDimX",
            "blockDimY",
            "blockDimZ",
            "sharedMemBytes",
            "kern:H",
        ],
    ]


def _alloc(g: Generator, prefix: str = "") -> dict[str, Any]:
    fields = {
        f"{prefix}poolProps.allocType": g.number((1,), (0, 2)),
        f"{prefix}poolProps.handleTypes": g.number((0,), (1, 8)),
        f"{prefix}poolProps.location.type": g.number((1,), (0, 2)),
        f"{prefix}poolProps.location.id": g.number((0,), (1, -1)),
        f"{prefix}bytesize": g.number((64, 4096, MIB), (0, 1 << 60)),
    }
    if g.chance(0.2):
        fields[f"{prefix}accessDescs"] = access(g)
        fields[f"{prefix}accessDescCount"] = 1
    return fields


def node_and_alloc(g: Generator) -> None:
    g.make("node", 0)
    g.push(["o", "h"])
    g.push(g.handle("graph"))
    g.push(deps(g))
    g.push(deps_count(g))
    fields = _alloc(g)
    argument = ["S", "CUDA_MEM_ALLOC_NODE_PARAMS", fields, ["dptr:h"]]
    g.make("gptr", g.outs)
    g.push(argument)


def alloc_node_out(g: Generator) -> Any:
    return [
        "S",
        "CUDA_MEM_ALLOC_NODE_PARAMS",
        {},
        [
            "poolProps.allocType",
            "poolProps.location.type",
            "poolProps.location.id",
            "accessDescCount",
            "bytesize",
            "dptr:H",
        ],
    ]


def graph_ptr(g: Generator) -> Any:
    if g.live.get("gptr") and not g.wrong():
        return g.pick(g.live["gptr"]).reference
    return g.pointer()[0]


def memop_ptr(g: Generator) -> Any:
    return g.pointer(("dptr",))[0]


def memops(g: Generator) -> Any:
    """Writes and barriers; never a wait, which might not end."""
    kind = g.number((2, 5, 6), (0, 3, 99))
    if kind == 6:
        return ["S", "CUstreamBatchMemOpParams", {"operation": 6, "flushRemoteWrites.flags": g.number((0, 1), (9,))}]
    return [
        "S",
        "CUstreamBatchMemOpParams",
        {
            "operation": kind,
            "writeValue.address": memop_ptr(g),
            "writeValue.value64": 7,
            "writeValue.flags": g.number((0,), (1, 4)),
        },
    ]


def _memop(g: Generator, prefix: str = "") -> dict[str, Any]:
    return {
        f"{prefix}ctx": g.handle("ctx"),
        f"{prefix}count": g.number((1,), (0,)),
        f"{prefix}paramArray": memops(g),
        f"{prefix}flags": g.number((0,), (1,)),
    }


def memop_params(g: Generator) -> Any:
    return 0 if g.wrong(0.05) else ["S", "CUDA_BATCH_MEM_OP_NODE_PARAMS", _memop(g)]


def memop_out(g: Generator) -> Any:
    return ["S", "CUDA_BATCH_MEM_OP_NODE_PARAMS", {}, ["ctx:H", "count", "flags"]]


def node_params(g: Generator) -> Any:  # noqa: C901 (a branch for each kind of node)
    """CUgraphNodeParams of a random kind, for a new node and for one that is set."""
    kind = g.number((0, 1, 2, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13), (8, 9, 14, 99))
    name = NODE_TYPES[kind] if kind < len(NODE_TYPES) else ""
    g.facts["type"] = name
    fields: dict[str, Any] = {"type": kind}
    reads: list[str] = []
    if name == "kernel":
        fields |= _kernel(g, "kernel.")
    elif name == "memcpy":
        fields |= _copy3d(g, "memcpy.copyParams.")
        fields["memcpy.copyCtx"] = g.handle("ctx")
    elif name == "memset":
        fields |= _memset(g, "memset.")
        fields["memset.ctx"] = g.handle("ctx", optional=True)
    elif name == "host":
        fields["host.fn"] = callback(g)
    elif name == "child":
        fields |= {"graph.graph": g.handle("graph"), "graph.ownership": g.number((0, 0, 0, 1), (-1, 2, 9))}
    elif name in ("wait", "record"):
        fields["eventWait.event"] = g.handle("event")
    elif name == "alloc":
        fields |= _alloc(g, "alloc.")
        if g.call[0].startswith("cuGraphAddNode"):
            g.make("gptr", g.outs)
            reads = ["alloc.dptr:h"]
    elif name == "free":
        fields["free.dptr"] = graph_ptr(g)
    elif name == "memop":
        fields |= _memop(g, "memOp.")
    elif name == "cond":
        fields |= {
            "conditional.handle": g.handle("cond"),
            "conditional.type": g.number((0, 1, 2), (3,)),
            "conditional.size": g.number((1, 1, 2), (0, 9)),
            "conditional.ctx": g.handle("ctx", optional=True),
        }
    if g.wrong(0.05):
        fields["reserved2"] = 1
    return ["S", "CUgraphNodeParams", fields, reads] if reads else ["S", "CUgraphNodeParams", fields]


def zero_io(g: Generator) -> Any:
    return ["L", "Q", [g.number((0,), (1, 7))]]


def instantiate_params(g: Generator) -> Any:
    return (
        0
        if g.wrong(0.1)
        else [
            "S",
            "CUDA_GRAPH_INSTANTIATE_PARAMS",
            {"flags": g.number((0, 1, 2, 8), (4, 16, -1)), "hUploadStream": g.handle("stream", optional=True)},
            ["hErrNode_out:H", "result_out"],
        ]
    )


def update_out(g: Generator) -> Any:
    return 0 if g.wrong(0.1) else ["S", "CUgraphExecUpdateResultInfo", {}, ["result", "errorNode:H", "errorFromNode:H"]]


# functions


def block_size(g: Generator) -> int:
    return g.number((1, 32, 64, 100, 128, 256, 512, 1024), (0, -1, 1025, 4096))


def shared(g: Generator) -> int:
    return g.number((0, 0, 0, 1024, 16384, 32768, 49152), (49153, 232448, MIB, -1))


def b2d(g: Generator) -> Any:
    return g.pick((0, 0, 0, "&abs"))


def fun_launch(g: Generator) -> None:
    """A function, dimensions and dynamic shared memory; mostly something that cannot start."""
    reference = g.handle("fun")
    g.facts["fun"] = reference
    dimensions = [1, 1, 1, 64, 1, 1, 0]
    if g.chance(0.8):
        place = int(g.random.random() * 7)
        dimensions[place] = g.pick(
            ((0, 1 << 31, -1), (0, 65536), (0, 65536), (0, 1025, 4096), (0, 1025, 33), (0, 65), (49153, MIB, 232449))[
                place
            ]
        )
    g.push(reference)
    for one in dimensions:
        g.push(one)


def launch_params(g: Generator) -> Any:
    for one in g.call:
        found = parameters(g, one) if isinstance(one, str) else None
        if found is not None:
            return found
    return 0


def launch_config(g: Generator) -> Any:
    fields: dict[str, Any] = {
        "gridDimX": g.number((1, 8), (0, 1 << 31)),
        "gridDimY": g.number((1,), (0, 65536)),
        "gridDimZ": g.number((1,), (0, 65536)),
        "blockDimX": g.number((64, 128, 256), (0, 1025)),
        "blockDimY": g.number((1,), (0, 1025)),
        "blockDimZ": g.number((1,), (0, 65)),
        "sharedMemBytes": g.number((0, 0, 1024), (49153, MIB)),
        "hStream": g.handle("stream", optional=True),
    }
    if g.chance(0.5):
        key = g.pick((2, 4, 4, 4, 8, 14) if g.careful else (0, 2, 4, 8, 14, 99))
        value: dict[str, Any] = {"id": key}
        if key == 4:
            value |= {
                "value.clusterDim.x": g.number((1, 2, 4, 8), (0, 16, 3, 32)),
                "value.clusterDim.y": g.number((1,), (0, 2)),
                "value.clusterDim.z": 1,
            }
        else:
            value["value.priority"] = g.pick((0, 1))
        fields |= {"attrs": ["S", "CUlaunchAttribute", value], "numAttrs": g.number((1,), (0,))}
    return 0 if g.wrong(0.05) else ["S", "CUlaunchConfig", fields]


# the rest

SYMBOLS = (
    "cuInit", "cuMemAlloc", "cuMemAlloc_v2", "cuCtxCreate", "cuCtxCreate_v4", "cuStreamGetCaptureInfo", "cuGraphAddNode",
    "cuLaunchKernel", "cuGetProcAddress", "cuMemcpyHtoD", "cuEventElapsedTime", "cuGreenCtxCreate", "cuMemPoolCreate",
    "cuStreamBeginCapture", "cuGraphInstantiate", "cuProfilerStart", "cuGLInit", "cuMulticastCreate", "cuCtxGetDevice",
    "cuMemAdvise", "cuDeviceGetUuid", "cuTexRefCreate", "cuStreamWaitValue32", "cuDeviceGetProperties", "cuLogsCurrent",
    "cuMemBatchDecompressAsync", "cuCheckpointProcessLock", "cuMemAllocAsync", "cuEGLInit", "cudaMalloc", "cuNothing", "",
)  # fmt: skip


def symbol(g: Generator) -> Any:
    return 0 if g.wrong(0.1) else "'" + g.pick(SYMBOLS)


def _coredump_size(key: int) -> int:
    return 1023 if key in (5, 6) else 4 if key == 7 else 1


def coredump(g: Generator) -> None:
    key = g.number((1, 2, 3, 4, 7), (0, 5, 6, 8, 99))
    g.push(key)
    g.push(["o", "X", 1024] if key in (5, 6) else ["o", "I"] if key == 7 else ["o", "B"])
    g.push(0 if g.wrong(0.1) else ["io", "x" if key in (5, 6) else "Q", g.number((_coredump_size(key),), (0, 1, 3, 8))])


def set_coredump(g: Generator) -> None:
    key = g.number((1, 3, 7), (0, 8, 99))
    g.push(key)
    g.push(["L", "Q", [0]])
    g.push(["io", "Q", g.number((_coredump_size(key),), (0, 3, 8))])


def log_size(g: Generator) -> Any:
    return ["io", "x", 4096]


def ext_memory(g: Generator) -> Any:
    return [
        "S",
        "CUDA_EXTERNAL_MEMORY_HANDLE_DESC",
        {
            "type": g.number((1,), (0, 2, 9, 99)),
            "handle.fd": -1,
            "size": g.number((65536,), (0,)),
            "flags": g.number((0, 1), (9,)),
        },
    ]


def ext_semaphore(g: Generator) -> Any:
    return [
        "S",
        "CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC",
        {"type": g.number((1, 9), (0, 2, 99)), "handle.fd": -1, "flags": g.number((0,), (9,))},
    ]


_RESOURCE = ["type", "sm.smCount", "*"]


def resource_get(g: Generator) -> Any:
    if g.wrong(0.05):
        return 0
    g.make("res", g.outs + 2)
    return ["S", "CUdevResource", {}, list(_RESOURCE)]


def _resource(g: Generator) -> Any:
    if not g.live.get("res") and g.depth < 3:
        from .generate import _BY_SYMBOL

        g.emit(_BY_SYMBOL["cuDeviceGetDevResource"], careful=True)
    return g.pick(g.live["res"]).reference if g.live.get("res") and not g.wrong(0.1) else 0


def split(g: Generator) -> None:
    source = _resource(g)
    groups = g.number((1, 2, 2, 4), (0, 99))
    if g.chance(0.15):
        g.push(0)
    else:
        g.make("res", g.outs + 2)
        g.push(
            ["S", "CUdevResource", {}, list(_RESOURCE)]
            if groups == 1
            else ["A", [["S", "CUdevResource", {}, list(_RESOURCE)] for _ in range(min(max(groups, 1), 4))]]
        )
    g.push(["io", "I", min(groups, 4)])
    g.push(source)
    if g.chance(0.3):
        g.push(0)
    else:
        g.make("res", g.outs + 2)
        g.push(["S", "CUdevResource", {}, list(_RESOURCE)])
    g.push(g.number((0,), (1, 2, 9)))
    g.push(g.number((8, 16, 32, 1, 64), (0, 133, 500)))


def resources(g: Generator) -> Any:
    return _resource(g)
