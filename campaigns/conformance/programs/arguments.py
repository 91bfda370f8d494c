"""Arguments of the driver API that arguments.txt does not describe; each function pushes or returns what it makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .images import IMAGES
from .images import image as load

if TYPE_CHECKING:
    from .generate import Generator

MIB = 1 << 20
#: The types of a graph's nodes, by their numbers.
NODE_TYPES = (
    "kernel", "memcpy", "memset", "host", "child", "empty", "wait", "record", "", "", "alloc", "free", "memop", "cond",
)  # fmt: skip


def va_size(g: Generator) -> int:
    """The size of the pointer in front of it, or another."""
    sizes = [handle.facts.get("size", 2 * MIB) for handle in g.live.get("va", ()) if handle.reference == g.call[1]]
    return g.number(sizes or (2 * MIB,), (0, 2 * MIB, 4 * MIB, 4096, 1 << 60))


def va_place(g: Generator) -> Any:
    reference = g.handle("va")
    moved = reference and g.wrong(0.2) and str(reference)[0] == "$"
    return f"{reference}+{g.pick((2 * MIB, 4096, 8 * MIB))}" if moved else reference


def vmh_like(g: Generator) -> Any:
    """Memory as large as the range in front of it, when the call is to be valid."""
    handle = g.of_type("vmh", size=g.call[2]) if g.careful else None
    return handle.reference if handle else g.handle("vmh")


def managed_size(g: Generator) -> int:
    sizes = [handle.facts.get("size", 4096) for handle in g.live.get("mptr", ()) if handle.reference in g.call]
    return g.number(sizes or (4096,), (0, 1, 4096, 1 << 40))


def host(g: Generator) -> Any:
    if g.wrong(0.1):
        return 0
    alive = g.live.get("hptr")
    if alive and g.chance(0.3):
        picked = g.pick(alive)
        room = picked.facts.get("size", 64)
        g.facts["room"] = min(room, g.facts.get("room", room))
        return picked.reference
    return f"@{g.pick((0, 4096, 65536, MIB))}"


def register(g: Generator) -> Any:
    """Host memory to register, which is then known by its address; its handle is no value that a call gives."""
    place = f"@{g.pick((0, 4096, 65536, MIB, 2 * MIB))}"
    if g.wrong(0.2):
        return g.pick((0, "@100", "$0"))
    g.make("reg", 0).reference = place
    return place


def place(g: Generator) -> Any:
    """One side of a copy or a filling."""
    reference, room = g.pointer()
    g.facts["room"] = min(room, g.facts.get("room", room))
    return _offset(g, reference, room)


def _offset(g: Generator, reference: Any, room: int) -> Any:
    if room >= 64 and isinstance(reference, str) and reference[0] == "$" and g.chance(0.1):
        g.facts["room"] = room - 4
        return f"{reference}+4"
    return reference


def count(g: Generator, width: str = "") -> int:
    """How many bytes are copied, or how many values of a width are filled in."""
    room = min(g.facts.get("room", 64), MIB)
    length = g.number((room, max(room // 2, 1), min(room, 4), min(room, 16)), (0, 0, room + 1, 1 << 60))
    return max(length // int(width), 1) if width else length


def inside(g: Generator) -> Any:
    return _offset(g, *g.pointer(("dptr", "mptr", "aptr", "va", "hptr")))


def free(g: Generator) -> Any:
    reference, _ = g.pointer(("dptr", "mptr"))
    g.gone += [handle for kind in ("dptr", "mptr") for handle in g.live.get(kind, ()) if handle.reference == reference]
    return _offset(g, reference, 64) if not g.careful else reference


def device_attribute(g: Generator) -> int:
    machine = (33, 34, 50, 123)  # PCI and the NUMA node of the host belong to a machine
    number = g.number(range(1, 146), (0, 146, 150, 200, -1))
    return 1 if number in machine else number


def ctx_params(g: Generator) -> Any:
    if g.chance(0.75):
        return 0
    without = ["S", "CUctxCreateParams", {"execAffinityParams": 0}]
    return without if g.chance(0.5) else g.value("@ctx_params_affinity")


def affinity(g: Generator) -> Any:
    return g.pick((0, 0, g.value("@affinity_of_8")))


def image(g: Generator) -> Any:
    g.facts["image"] = image = IMAGES[g.number((0, 0, 0, 0, 1, 6, 6, 9), tuple(range(2, len(IMAGES))))]
    return 0 if g.wrong(0.1) else "!" + image


def ptx_image(g: Generator) -> Any:
    sound = ("program", "other")
    g.facts["image"] = name = g.pick(sound if g.careful else (*sound, "program", "broken", "text"))
    return "!" + name


def ptx_size(g: Generator) -> int:
    return len(load(g.facts["image"]))


def dot_path(g: Generator) -> Any:
    return g.pick((0, "'/nonexistent/folder/graph.dot")) if g.wrong() else "'/tmp/cudalink-programs.dot"


#: Keys and values of options, for calls that are to be valid, and for the others.
_JIT = (([], []), ([0], [32]), ([7], [4]), ([7, 12], [3, 0]), ([9], [90]), ([10], [0]))
_OPTIONS: dict[str, tuple[Any, Any]] = {
    "jit": (_JIT, (*_JIT, ([14], [1]), ([1], [128]), ([7], [9]), ([9], [75]), ([99], [0]))),
    "library": ((([], []), ([1], [0]), ([1], [1])), (([1], [1]), ([2], [0]), ([0], [0]))),
}


def _options(g: Generator, name: str) -> tuple[list[int], list[int]]:
    """The options of the call, chosen once."""
    if name not in g.facts:
        g.facts[name] = g.pick(_OPTIONS[name][not g.careful])
    numbers: tuple[list[int], list[int]] = g.facts[name]
    return numbers


def option_count(g: Generator, name: str) -> int:
    return len(_options(g, name)[0])


def option_keys(g: Generator, name: str) -> Any:
    keys, _ = _options(g, name)
    return ["L", "I", keys] if keys else 0


def option_values(g: Generator, name: str) -> Any:
    keys, values = _options(g, name)
    return ["L", "Q", values] if keys else 0


def _image_of(g: Generator) -> str:
    """The image of the module or library that the call just named."""
    handles = (*g.live.get("mod", ()), *g.live.get("lib", ()))
    return next((str(h.facts.get("image", "program")) for h in handles if h.reference == g.call[-1]), "program")


#: Kernels of "program" and the number of their parameters.
KERNELS = {"plain": 0, "small": 2, "wide": 2}
_KERNELS = {
    "program": tuple(KERNELS), "linked": ("apply_transform",), "older": ("apply_transform",), "undefined": ("calls",),
}  # fmt: skip
_VARIABLES = {"program": ("answer", "factor", "zeros"), "other": ("table",)}


def kernel_name(g: Generator) -> Any:
    names = _KERNELS.get(_image_of(g), ("plain",))
    g.facts["kernel"] = name = g.pick(("missing", "", "answer", "twice")) if g.wrong(0.4) else g.pick(names)
    return 0 if g.wrong(0.15) else "'" + name


def variable(g: Generator) -> Any:
    names = _VARIABLES.get(_image_of(g), ("answer",))
    name = g.pick(("missing", "", "small")) if g.wrong(0.4) else g.pick(names)
    return 0 if g.wrong(0.15) else "'" + name


def float(g: Generator) -> Any:  # noqa: A001 (the name of a type in the table)
    return ["F", 1.5]


def ipc_blob(g: Generator) -> Any:
    return ["M", 64]


# of programs about order


def gate(g: Generator) -> str:
    """The next gate of the program: a word of pinned memory that is 0 until the program writes 1."""
    return f"{g.area}+{8 * len(g.gates)}"


def word(g: Generator) -> str:
    """A word of pinned memory that nothing else writes."""
    return f"{g.area}+{1024 + 4 * len(g.program)}"


def counter(g: Generator) -> str:
    """A semaphore of the C library, whose first word counts how often it was posted."""
    return f"{g.area}+{4096 + 32 * len(g.program)}"


def constant(g: Generator) -> str:
    """Device memory that the program fills once."""
    return g.filled


# attributes of pointers, ranges, pools and streams

#: The letters of the attributes of pointers, from 1 on.
_POINTER = ("H", "I", "H", "H", "X16", "I", "x", "I", "i", "I", "H", "Q", "I", "Q", "I", "I", "H", "Q", "H", "x", "I")


def _pointer_out(attribute: int) -> Any:
    letter = _POINTER[attribute - 1] if 1 <= attribute <= len(_POINTER) else "Q"
    return ["o", "X", 16] if letter == "X16" else ["o", letter]


def _any_pointer(g: Generator) -> Any:
    kinds = [kind for kind in ("dptr", "mptr", "aptr", "va", "hptr", "reg") if g.live.get(kind)] or ["dptr"]
    reference, room = g.pointer((g.pick(kinds),))
    if g.wrong(0.3):
        return g.pick(("@0", "@4096", 0, 4096))
    return _offset(g, reference, room) if str(reference)[0] == "$" else reference


def pointer_attribute(g: Generator) -> None:
    attribute = g.number((*range(1, 22), 2, 9, 11, 12), (0, 22, 99, -1))
    g.push(0 if g.wrong(0.05) else _pointer_out(attribute), attribute, _any_pointer(g))


def pointer_attributes(g: Generator) -> None:
    several = [g.number((1, 2, 3, 4, 6, 8, 9, 11, 12, 13), (0, 99)) for _ in range(3)]
    outs = [_pointer_out(argument) for argument in several]
    g.push(g.number((3,), (0, 1)), ["L", "I", several], ["L", "Q", outs], _any_pointer(g))


def range_attribute(g: Generator) -> None:
    attribute = g.number(range(1, 9), (0, 9, 99))
    many = attribute == 3 and g.chance(0.7)
    g.push(["o", "i", 4] if many else ["o", "i"], 16 if many else g.number((4,), (0, 3, 8)), attribute)


def range_attributes(g: Generator) -> None:
    several = [g.number((1, 2, 4, 5, 6), (0, 9)) for _ in range(2)]
    sizes = ["L", "Q", [4, g.number((4,), (0, 3))]]
    g.push(["L", "Q", [["o", "i"], ["o", "i"]]], sizes, ["L", "I", several], g.number((2,), (0, 1)))


def pool_attribute(g: Generator) -> None:
    attribute = g.number(range(1, 9), (0, 9, 10, -1))
    # a current or high amount depends on what the driver keeps
    g.push(attribute, ["o", "i"] if attribute in (1, 2, 3) else ["o", "Q"])


def set_pool_attribute(g: Generator) -> None:
    attribute = g.number((1, 2, 3, 4, 4, 6, 8), (0, 5, 7, 9))
    valid = (0, 65536, (1 << 64) - 1) if attribute == 4 else (0,)
    g.push(attribute, ["L", "Q", [g.pick((0, 1)) if attribute in (1, 2, 3) else g.number(valid, (1, 7))]])


#: Fields of the attributes of streams and kernels, and what they are set to.
_STREAM = {
    1: {"accessPolicyWindow.num_bytes": 0},
    2: {"cooperative": 1},
    3: {"syncPolicy": 2},
    4: {"clusterDim.x": 1, "clusterDim.y": 1, "clusterDim.z": 1},
    8: {"priority": -1},
    9: {"memSyncDomainMap.default_": 0, "memSyncDomainMap.remote": 1},
    10: {"memSyncDomain": 0},
}


def stream_attribute(g: Generator) -> None:
    key = g.number((1, 3, 8, 9, 10), (0, 2, 4, 5, 99))
    reads = [*_STREAM.get(key, _STREAM[2])]
    reads += ["accessPolicyWindow.hitProp", "accessPolicyWindow.missProp"] if key == 1 else []
    g.push(key, 0 if g.wrong(0.1) else ["S", "CUlaunchAttributeValue", {}, reads])


def set_stream_attribute(g: Generator) -> None:
    key = g.number((1, 3, 8, 9, 10), (0, 2, 4, 5, 99))
    fields = {name: g.number((value, 0, 1), (7, -1)) for name, value in _STREAM.get(key, _STREAM[2]).items()}
    g.push(key, 0 if g.wrong(0.1) else ["S", "CUlaunchAttributeValue", fields])


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


def _side(g: Generator, fields: dict[str, Any], side: str) -> None:
    kind = g.number((1, 2, 2, 4) + ((3, 3, 3) if g.live.get("arr") else ()), (0, 5, 99))
    fields[f"{side}MemoryType"] = kind
    if kind == 1:
        fields[f"{side}Host"] = host(g)
    elif kind == 3:
        fields[f"{side}Array"] = g.handle("arr")
    else:
        fields[f"{side}Device"] = g.pointer()[0]
    if g.wrong(0.2):
        fields[f"{side}XInBytes"] = g.pick((4, 1, 1 << 40))
        fields[f"{side}Y"] = g.pick((1, 1000000))


def _copy3d(g: Generator, prefix: str = "") -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for side in (f"{prefix}src", f"{prefix}dst"):
        _side(g, fields, side)
        if fields[f"{side}MemoryType"] != 3 and g.chance(0.7):
            fields[f"{side}Pitch"] = g.number((64, 128), (1, 8))
            fields[f"{side}Height"] = g.number((2, 4), (0, 1))
        if g.wrong(0.1):
            fields[f"{side}LOD"] = 1
    return fields | g.fields("copy3d_size", prefix)


def copy3d(g: Generator) -> Any:
    return 0 if g.wrong(0.05) else ["S", "CUDA_MEMCPY3D", _copy3d(g)]


def copy3dpeer(g: Generator) -> Any:
    return ["S", "CUDA_MEMCPY3D_PEER", {**_copy3d(g), "srcContext": g.handle("ctx"), "dstContext": g.handle("ctx")}]


def zero_list(g: Generator) -> Any:
    return ["L", "Q", [0, 1]] if g.chance(0.9) else ["L", "Q", [1, 0]]


def copy_attributes(g: Generator) -> Any:
    argument = g.value("@copy_attribute")
    return ["A", [argument, argument]]


# pools, arrays and textures


def _ordinal(g: Generator) -> int:
    return g.pick((1, -1, 99)) if g.wrong() else 0


def location(g: Generator) -> Any:
    kind = g.number((1, 1, 1, 1, 2, 3), (0, 4, 9))
    return 0 if g.wrong(0.1) else ["S", "CUmemLocation", {"type": kind, "id": _ordinal(g)}]


def locv(g: Generator) -> int:
    """A CUmemLocation as it goes in a register."""
    kind = g.number((1, 1, 1, 2, 3), (0, 4, 9))
    return kind | (g.pick((1, 99, 0xFFFFFFFF)) if g.wrong() else 0) << 32


def access(g: Generator) -> Any:
    kind = g.number((1, 1, 1, 1, 2), (0, 3, 9))
    if g.wrong(0.1):
        return 0
    fields = {"location.type": kind, "location.id": _ordinal(g), "flags": g.number((3, 3, 3, 1, 0), (2, 4, 9))}
    return ["S", "CUmemAccessDesc", fields]


def array3d_desc(g: Generator) -> Any:
    if g.wrong(0.05):
        return 0
    flags = g.number((0, 0, 0, 1, 2, 4, 6, 5), (7, 8, 16, 32, 64, 128, 256, 1 << 20))
    width = g.number((16, 64, 32), (0, 1 << 20))
    height = width if flags & 4 and not g.wrong() else g.number((0, 0, 4, 16, 64) if flags != 8 else (16,), (1 << 20,))
    depth = g.number((6,) if flags & 4 else (1, 3) if flags & 1 else (0, 0, 4), (0, 1, 7, 1 << 20))
    if depth and not height and not flags & 1 and g.careful:
        height = 4
    fields = {"Width": width, "Height": height, "Depth": depth if flags & 5 or height else 0}
    return ["S", "CUDA_ARRAY3D_DESCRIPTOR", {**fields, **g.fields("array_values"), "Flags": flags}]


def resource_desc(g: Generator) -> Any:
    kind = g.number((0, 0, 0, 1, 2, 3), (4, 9))
    fields = {"resType": kind, "flags": g.number((0,), (1,))}
    fields |= g.fields({1: "resource_mipmap", 2: "resource_linear", 3: "resource_pitch2d"}.get(kind, "resource_array"))
    return 0 if g.wrong(0.05) else ["S", "CUDA_RESOURCE_DESC", fields]


def view_desc(g: Generator) -> Any:
    return 0 if g.chance(0.8) else g.value("@view")


def _tensor(g: Generator) -> None:
    rank = g.number((1, 2, 3), (0, 6))
    g.push(["o", "X", 128], g.number((0, 1, 2, 6, 7, 9), (13, 16, 99, -1)), rank)
    g.push(g.pointer()[0] if not g.wrong(0.2) else g.pick((0, 8, "@4")))
    g.push(_five(g, "Q", (16, 64, 128), (0, 1 << 33)), _five(g, "Q", (256, 1024), (0, 1, 8, 1 << 41)))


def _five(g: Generator, letter: str, valid: tuple[int, ...], invalid: tuple[int, ...]) -> Any:
    return ["L", letter, [g.number(valid, invalid) for _ in range(5)]]


def _tensor_end(g: Generator) -> None:
    g.push(_five(g, "I", (1,), (0, 9)))
    for valid, invalid in (((0, 0, 1, 2), (3,)), ((0, 0, 1, 2, 3), (4, 9)), ((0, 1, 2, 3), (4,)), ((0, 1), (2,))):
        g.push(g.number(valid, invalid))


def tensor_tiled(g: Generator) -> None:
    _tensor(g)
    g.push(_five(g, "I", (4, 8, 16), (0, 257)))
    _tensor_end(g)


def tensor_im2col(g: Generator) -> None:
    _tensor(g)
    g.push(["L", "i", [0] * 3], ["L", "i", [g.pick((0, -1, 1))] * 3])
    g.push(g.number((4, 16), (0, 257)), g.number((4, 16), (0, 1025)))
    _tensor_end(g)


# graphs


def _graph_here(g: Generator) -> str | None:
    """The graph that the call in the making names."""
    return next((handle.reference for handle in g.live.get("graph", ()) if handle.reference in g.call), None)


def node(g: Generator, kind: str = "") -> Any:
    """A node, of the graph that the call names when there is one."""
    if g.careful:
        wanted = {"graph": _graph_here(g), "type": kind}
        node = g.of_type("node", **{name: value for name, value in wanted.items() if value})
        if node:
            return node.reference
    return g.handle("node")


def deps(g: Generator) -> Any:
    g.facts["graph"] = graph = _graph_here(g)
    g.facts["type"] = _NODE_OF.get(g.call[0], "")
    nodes = [handle.reference for handle in g.live.get("node", ()) if handle.facts.get("graph") == graph]
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
    return 0 if g.chance(0.9) or g.facts.get("deps", 1) != 1 else g.value("@edge")


def graph_list(g: Generator, form: str) -> None:
    """Room for nodes, or for edges, which have two ends, with data of edges in the newer form; and for their number."""
    empty = g.chance(0.4)
    g.push(0 if empty else ["o", "H", 4])
    if form.startswith("edges"):
        g.push(0 if empty or g.wrong(0.1) else ["o", "H", 4])
    if form.endswith("v2"):
        g.push(0 if empty or g.chance(0.6) else ["o", "B", 32])
    g.push(0 if g.wrong(0.1) else ["io", "Q", g.number((4, 4, 2), (0, 1))])


def _kernel(g: Generator, prefix: str = "") -> dict[str, Any]:
    field, kind = ("func", "fun") if g.chance(0.7) else ("kern", "ker")
    reference = g.handle(kind)
    fields = {f"{prefix}{field}": reference, **g.fields("dimensions", prefix)}
    return {**fields, f"{prefix}kernelParams": parameters(g, reference)}


def parameters(g: Generator, reference: Any) -> Any:
    """What the kernel behind a handle takes."""
    kernels = [handle for kind in ("fun", "ker") for handle in g.live.get(kind, ()) if handle.reference == reference]
    name = kernels[-1].facts.get("kernel", "") if kernels else ""
    return 0 if g.wrong(0.15) or not KERNELS.get(name) else ["P", [g.pointer(("dptr",))[0], 1, 2]]


def kernel_params(g: Generator) -> Any:
    return 0 if g.wrong(0.05) else ["S", "CUDA_KERNEL_NODE_PARAMS", _kernel(g)]


def _alloc(g: Generator, prefix: str = "") -> dict[str, Any]:
    fields = g.fields("alloc_params", prefix)
    if g.chance(0.2):
        fields |= {f"{prefix}accessDescs": access(g), f"{prefix}accessDescCount": 1}
    return fields


def node_and_alloc(g: Generator) -> None:
    g.make("node", 0)
    g.push(["o", "h"], g.handle("graph"))
    g.push(deps(g), deps_count(g))
    argument = ["S", "CUDA_MEM_ALLOC_NODE_PARAMS", _alloc(g), ["dptr:h"]]
    g.make("gptr", g.outs)
    g.push(argument)


def graph_ptr(g: Generator) -> Any:
    return g.pick(g.live["gptr"]).reference if g.live.get("gptr") and not g.wrong() else g.pointer()[0]


def memop_ptr(g: Generator) -> Any:
    return g.pointer(("dptr",))[0]


def memops(g: Generator) -> Any:
    """Writes and barriers; never a wait, which might not end."""
    kind = g.number((2, 5, 6), (0, 3, 99))
    fields = g.fields("memop_flush" if kind == 6 else "memop_write")
    return ["S", "CUstreamBatchMemOpParams", {"operation": kind, **fields}]


def node_params(g: Generator) -> Any:
    """CUgraphNodeParams of a random kind, for a new node and for one that is set."""
    kind = g.number((0, 1, 2, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13), (8, 9, 14, 99))
    g.facts["type"] = name = NODE_TYPES[kind] if kind < len(NODE_TYPES) else ""
    fields: dict[str, Any] = {"type": kind}
    reads: list[str] = []
    if name == "kernel":
        fields |= _kernel(g, "kernel.")
    elif name == "memcpy":
        fields |= {**_copy3d(g, "memcpy.copyParams."), "memcpy.copyCtx": g.handle("ctx")}
    elif name == "memset":
        fields |= g.fields("memset_params", "memset.") | {"memset.ctx": g.handle("ctx", optional=True)}
    elif name == "alloc":
        fields |= _alloc(g, "alloc.")
        if g.call[0].startswith("cuGraphAddNode"):
            g.make("gptr", g.outs)
            reads = ["alloc.dptr:h"]
    elif name == "memop":
        fields |= g.fields("memop_params", "memOp.")
    elif name not in ("", "empty"):
        fields |= g.fields(f"node_{name}")
    if g.wrong(0.05):
        fields["reserved2"] = 1
    return ["S", "CUgraphNodeParams", fields, *([reads] if reads else [])]


# launches


def fun_launch(g: Generator) -> None:
    """A function, dimensions and dynamic shared memory; mostly something that cannot start."""
    g.facts["fun"] = reference = g.handle("fun")
    dimensions = [1, 1, 1, 64, 1, 1, 0]
    too_many = (0, 1 << 31, -1), (0, 65536), (0, 65536), (0, 1025, 4096), (0, 1025, 33), (0, 65), (49153, MIB, 232449)
    if g.chance(0.8):
        place = int(g.random.random() * 7)
        dimensions[place] = g.pick(too_many[place])
    g.push(reference, *dimensions)


def launch_params(g: Generator) -> Any:
    return next((parameters(g, argument) for argument in g.call if isinstance(argument, str)), 0)


def launch_config(g: Generator) -> Any:
    fields = g.fields("launch")
    if g.chance(0.5):
        key = g.pick((2, 4, 4, 4, 8, 14) if g.careful else (0, 2, 4, 8, 14, 99))
        more = g.fields("launch_cluster") if key == 4 else {"value.priority": g.pick((0, 1))}
        fields |= {"attrs": ["S", "CUlaunchAttribute", {"id": key, **more}], "numAttrs": g.number((1,), (0,))}
    return 0 if g.wrong(0.05) else ["S", "CUlaunchConfig", fields]


# the rest


def coredump(g: Generator) -> None:
    key = g.number((1, 2, 3, 4, 7), (0, 5, 6, 8, 99))
    is_text = key in (5, 6)
    g.push(key, ["o", "X", 1024] if is_text else ["o", "I" if key == 7 else "B"])
    size = 1023 if is_text else 4 if key == 7 else 1
    g.push(0 if g.wrong(0.1) else ["io", "x" if is_text else "Q", g.number((size,), (0, 1, 3, 8))])


def set_coredump(g: Generator) -> None:
    key = g.number((1, 3, 7), (0, 8, 99))
    g.push(key, ["L", "Q", [0]], ["io", "Q", g.number((4 if key == 7 else 1,), (0, 3, 8))])


def _resource_out(g: Generator) -> Any:
    g.make("res", g.outs + 2)
    return g.value("@resource")


def resource_get(g: Generator) -> Any:
    return 0 if g.wrong(0.05) else _resource_out(g)


def resources(g: Generator) -> Any:
    if not g.live.get("res") and g.depth < 3:
        g.emit_symbol("cuDeviceGetDevResource")
    return g.pick(g.live["res"]).reference if g.live.get("res") and not g.wrong(0.1) else 0


def split(g: Generator) -> None:
    source = resources(g)
    groups = g.number((1, 2, 2, 4), (0, 99))
    if g.chance(0.15):
        g.push(0)
    else:
        several = [_resource_out(g), *(g.value("@resource") for _ in range(1, min(groups, 4)))]
        g.push(several[0] if groups == 1 else ["A", several])
    g.push(["io", "I", min(groups, 4)], source)
    g.push(0 if g.chance(0.3) else _resource_out(g))
    g.push(g.number((0,), (1, 2, 9)), g.number((8, 16, 32, 1, 64), (0, 133, 500)))
