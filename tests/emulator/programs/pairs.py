"""Ask functions of the API with values of each two arguments: ``pairs.py LIBRARY FUNCTIONS``; prints a line for each.

LIBRARY is made of ``native/combinations.c``; FUNCTIONS is JSON, the types of the parameters of each, by its name.
"""

import itertools
import json
import re
import struct
import sys
from collections.abc import Iterator, Sequence
from ctypes import (
    CDLL,
    POINTER,
    Array,
    Structure,
    addressof,
    byref,
    c_char,
    c_int,
    c_size_t,
    c_uint,
    c_uint64,
    c_void_p,
    cast,
    create_string_buffer,
)

from tests.emulator import cu
from tests.emulator.cu import cuda, get, new, ok

combinations, plain = CDLL(sys.argv[1]), CDLL("libcuda.so.1")  # without declared arguments
memory = create_string_buffer(8 << 20)
HOST = addressof(memory) + (1 << 20)
kept: list[object] = []  # what lives until there are new objects


class Parameter(Structure):
    """As in combinations.c, as the others here."""

    _fields_ = (("values", POINTER(c_uint64)), ("few", c_int), ("all", c_int), ("pointer", c_int), ("words", c_uint64))


class Subject(Structure):  # noqa: D101
    _fields_ = (("function", c_void_p), ("count", c_int), ("parameters", POINTER(Parameter)))


class Outcome(Structure):  # noqa: D101
    _fields_ = (
        *(("answers", c_uint64), ("codes", c_uint * 1000), ("questions", POINTER(Subject)), ("question_count", c_int)),
        *(("end_error", c_void_p), ("event_count", c_void_p), ("read_event", c_void_p)),
    )


def address(name: str, library: CDLL = plain) -> int:
    return cast(getattr(library, name), c_void_p).value or 0


NOTHING = address("nothing", combinations)
CONTROL = {
    "end_error": address("cudalinkEndError"),
    "event_count": address("cudalinkEventCount"),
    "read_event": address("cudalinkEventRead"),
}


def room(data: bytes) -> int:
    """Address of some bytes, and zeros behind them."""
    buffer: Array[c_char] = create_string_buffer(data, 512)
    kept.append(buffer)
    return addressof(buffer)


def parameter(values: Sequence[int], few: int, *, pointer: bool = False, words: int = 0) -> Parameter:
    array = (c_uint64 * len(values))(*(value % (1 << 64) for value in values))
    return Parameter(array, min(few, len(values)), len(values), pointer, words)


def subject(name: str, *parameters: Parameter) -> Subject:
    array = (Parameter * len(parameters))(*parameters)
    kept.append(array)
    return Subject(address(name), len(parameters), array)


def objects(context: c_void_p) -> dict[str, list[int]]:
    """Live objects of each kind."""
    module, image = cu.loaded(cu.small_ptx()), cu.small_ptx()
    library = new(cuda.cuLibraryLoadData, image, None, None, 0, None, None, 0)
    graph, other = (new(cuda.cuGraphCreate, 0) for _ in range(2))
    kernels, none = [cu.kernel_of(module, name) for name in ("small", "other")], c_size_t(0)
    array, resource = new(cuda.cuArrayCreate_v2, (c_uint64 * 3)(8, 8, 1 << 32 | 0x20)), create_string_buffer(144)
    ok(cuda.cuDeviceGetDevResource(0, resource, 1))
    shape = new(cuda.cuDevResourceGenerateDesc, resource, 1)
    launch = struct.pack("Q7I36x", kernels[1].value, *[1] * 6, 0)
    fill = struct.pack("QQIIQQ", cu.allocate(64), 0, 1, 1, 8, 1)
    made = {
        "CUstream": [cu.stream(), cu.stream(1)],
        "CUevent": [cu.event(), cu.event(2)],
        "CUcontext": [context, new(cuda.cuDevicePrimaryCtxRetain, 1)],
        "CUlibrary": [library],
        "CUmodule": [module],
        "CUkernel": [new(cuda.cuLibraryGetKernel, library, b"small")],
        "CUfunction": kernels,
        "CUgraph": [graph, other],
        "CUgraphNode": [
            *(new(cuda.cuGraphAddEmptyNode, each, None, none) for each in (graph, other)),
            new(cuda.cuGraphAddKernelNode_v2, graph, None, none, launch),
            new(cuda.cuGraphAddMemsetNode, graph, None, none, fill, context),
        ],
        "CUgraphExec": [new(cuda.cuGraphInstantiateWithFlags, graph, c_uint64(0))],
        "CUlinkState": [new(cuda.cuLinkCreate_v2, 0, None, None, c_void_p)],
        "CUarray": [array],
        "CUmipmappedArray": [new(cuda.cuMipmappedArrayCreate, struct.pack("3Q3I", 8, 8, 0, 0x20, 1, 0), 2)],
        "CUmemoryPool": [new(cuda.cuDeviceGetMemPool, 0), new(cuda.cuMemPoolCreate, struct.pack("4I72x", 1, 0, 1, 0))],
        "CUtexref": [new(cuda.cuTexRefCreate)],
        "CUuserObject": [new(cuda.cuUserObjectCreate, None, c_void_p(NOTHING), 1, 1)],
        "CUdevResourceDesc": [shape],
        "CUgreenCtx": [new(cuda.cuGreenCtxCreate, shape, 0, 1)],
        "CUmemGenericAllocationHandle": [
            new(cuda.cuMemCreate, c_size_t(2 << 20), struct.pack("4I24x", 1, 0, 1, 0), c_uint64(0))
        ],
        "CUtexObject": [new(cuda.cuTexObjectCreate, struct.pack("2Q128x", 0, array.value), bytes(128), None)],
    }
    kept.append(resource)
    return {kind: [each.value for each in some] for kind, some in made.items()}


def structures(made: dict[str, list[int]], device: int) -> dict[str, bytes]:
    """What the usual bytes behind a pointer are, by its type."""
    array, context = made["CUarray"][0], made["CUcontext"][0]
    fill = struct.pack("QQIIQQ", device, 0, 1, 1, 8, 1)
    flat = struct.pack("QQI4xQQQQ", 0, 0, 2, HOST, device, array, 64)
    deep = struct.pack("32xI4x6Q", 2, HOST, device, array, context, 64, 4)
    resource = create_string_buffer(144)
    ok(cuda.cuDeviceGetDevResource(0, resource, 1))
    return {
        **{f"{kind}*": struct.pack("2Q", *(some * 2)[:2]) for kind, some in made.items()},
        "char*": b"small",
        "CUDA_HOST_NODE_PARAMS*": struct.pack("2Q", NOTHING, 0),
        "CUDA_ARRAY_DESCRIPTOR*": struct.pack("2Q2I", 8, 8, 0x20, 1),
        "CUDA_ARRAY3D_DESCRIPTOR*": struct.pack("3Q3I", 8, 8, 2, 0x20, 1, 0),
        "CUDA_MEMSET_NODE_PARAMS*": fill,
        "CUgraphNodeParams*": struct.pack("I12x", 2) + fill,
        "CUDA_KERNEL_NODE_PARAMS*": struct.pack("Q7I", made["CUfunction"][0], *[1] * 6, 0),
        "CUDA_RESOURCE_DESC*": struct.pack("2Q", 0, array),
        "CUDA_TEXTURE_DESC*": bytes(64),
        "CUlaunchConfig*": struct.pack("7I", *[1] * 6, 0),
        "CUdevResource*": resource.raw,
        **dict.fromkeys(("CUmemAllocationProp*", "CUmemPoolProps*"), struct.pack("4I24x", 1, 0, 1, 0)),
        "CUDA_MEM_ALLOC_NODE_PARAMS*": struct.pack("4I72x3Q", 1, 0, 1, 0, 0, 0, 64),
        "CUmemAccessDesc*": struct.pack("3I", 1, 0, 3),
        "CUmemLocation*": struct.pack("2I", 1, 0),
        "CUDA_MEMCPY2D*": flat * 2 + struct.pack("2Q", 16, 2),
        **dict.fromkeys(("CUDA_MEMCPY3D*", "CUDA_MEMCPY3D_PEER*"), deep * 2 + struct.pack("3Q", 16, 2, 2)),
    }


#: Structures whose words are not changed, as some of them would be addresses.
WHOLE = ("CUgraphNodeParams*", "CUctxCreateParams*")


def changed_words(kind: str, data: bytes) -> int:
    """The words of a structure that are changed, as bits: the first of those that are no part of an address."""
    if kind in WHOLE or not re.search("CUDA_|Prop|Attr|Info|Data|Res|Desc|Loc|Conf|Param", kind):
        return 0
    copied = "MEMCPY" in kind  # sizes beyond 4 GiB would be those of memory of the host
    words = range(0, min(len(data) // 4, 24 if copied else 12), 1 + copied)
    whole = {word: int.from_bytes(data[4 * (word & ~1) :][:8], "little") for word in words}
    return sum(1 << word for word, value in whole.items() if value >> 32 <= 255 and (value >> 32 or value <= 1 << 23))


class Scene:
    """New objects, and the values that parameters have."""

    def __init__(self, state: str) -> None:
        kept.clear()
        for device in (1, 0):
            cuda.cuDevicePrimaryCtxReset_v2(device)
        made, gone = objects(context := cu.start()), {"CUevent": cu.event(), "CUstream": cu.stream()}
        device, freed = cu.allocate(4096), cu.allocate(64)
        ok(cuda.cuEventDestroy_v2(gone["CUevent"]) or cuda.cuStreamDestroy_v2(gone["CUstream"]))
        ok(cuda.cuMemFree_v2(freed))
        queued = get(cuda.cuMemAllocAsync, c_uint64, c_size_t(4096), None)
        self.filled, self.pairs = structures(made, device), state != "alone"
        self.values = {
            **{
                kind: [*some, 0, gone[kind].value if kind in gone else made["CUevent"][0]]
                for kind, some in made.items()
            },
            "CUdeviceptr": [device, 0, device + 8, cu.managed(), cu.pinned(), queued, freed, 77],
            "CUdevice": [0, 1, 2, -1],
        }
        stream, event, graph = (parameter(made[kind], 1) for kind in ("CUstream", "CUevent", "CUgraph"))
        result = parameter([room(b"")], 1, pointer=True)
        questions = [
            subject("cuCtxGetCurrent", result),
            subject("cuEventQuery", event),
            subject("cuStreamIsCapturing", stream, result),
            subject("cuGraphGetNodes", graph, parameter([0], 1), result),
        ]
        self.questions = (Subject * len(questions))(*questions)
        if state == "captured":
            ok(cuda.cuStreamBeginCapture_v2(c_void_p(made["CUstream"][0]), 2))
        cuda.cuCtxSetCurrent(context if self.pairs else None)

    def given(self, kind: str) -> Parameter:
        """The values of a parameter."""
        if kind in self.values:
            return parameter(self.values[kind], 6 * self.pairs)
        if re.search("(Fn|Callback|B2DSize)$", kind):
            return parameter([NOTHING, 0], 2 * self.pairs)
        if re.fullmatch("int|unsigned|size_t|long|cuuint\\d+_t|short|char", kind):
            return parameter([1, 0, 2, 3, 4, 5, 8, 64, 4096, 4097, -1], 7 * self.pairs)
        if kind[-1] != "*":
            return parameter([1, -1, 0, *range(2, 24)], 9 * self.pairs)
        data = self.filled.get(kind, b"")
        rooms = [room(data), 0, *([room(b"")] if data else [])]
        if kind != "CUctxCreateParams*":  # which begins with an address
            rooms += [room(struct.pack("2Q", *pair)) for pair in ((1, 1), (3, 2))]
        words = changed_words(kind, data or bytes(32)) if self.pairs else 0
        return parameter(rooms, len(rooms) * self.pairs, pointer=True, words=words)


def lines(functions: dict[str, list[str]]) -> Iterator[str]:
    """A line for each state and function."""
    asks, before = re.compile("Get|Query|Occupancy"), ""
    for state, (name, kinds) in itertools.product(("plain", "captured", "alone"), functions.items()):
        if state == "captured" and not {"CUstream", "CUcontext", "CUgraph", "CUevent", "CUgraphNode*"} & {*kinds}:
            continue
        if before != state or not asks.search(name):
            scene = Scene(state)
        before = state if asks.search(name) else ""
        out = Outcome(questions=scene.questions, question_count=len(scene.questions), **CONTROL)
        combinations.combine(byref(subject(name, *map(scene.given, kinds))), byref(out))
        codes = (f"{code}:{count}" for code, count in enumerate(out.codes) if count)
        yield " ".join([state, name, *codes, f"{out.answers:x}"])


ok(cuda.cuInit(0))
print(*lines(json.loads(sys.argv[2])), sep="\n")
