"""What programs call: the functions of functions.txt and the arguments of arguments.txt, and themes of programs."""

from dataclasses import dataclass
from pathlib import Path

# ruff: noqa: E501, SIM905 (a theme is a line, and names are words)

#: Kinds of handles, and the letter of those that are small numbers.
KINDS = {
    "ctx": "", "stream": "", "event": "", "mod": "", "lib": "", "fun": "", "ker": "", "link": "",
    "dptr": "", "mptr": "", "aptr": "", "hptr": "", "reg": "", "pool": "", "vmh": "v", "va": "", "arr": "", "mip": "",
    "tex": "t", "surf": "t", "texref": "", "graph": "", "node": "", "exec": "", "uobj": "", "cond": "c", "gctx": "",
    "desc": "", "note": "", "log": "",
}  # fmt: skip

#: Which functions make a kind, for a call that needs one.
MAKERS = {
    "ctx": "cuCtxCreate_v4 cuCtxCreate_v2 cuDevicePrimaryCtxRetain",
    "stream": "cuStreamCreate cuStreamCreate cuStreamCreateWithPriority",
    "event": "cuEventCreate",
    "mod": "cuModuleLoadData",
    "lib": "cuLibraryLoadData",
    "fun": "cuModuleGetFunction",
    "ker": "cuLibraryGetKernel",
    "link": "cuLinkCreate_v2",
    "dptr": "cuMemAlloc_v2 cuMemAlloc_v2 cuMemAllocPitch_v2",
    "mptr": "cuMemAllocManaged",
    "aptr": "cuMemAllocAsync cuMemAllocFromPoolAsync",
    "hptr": "cuMemHostAlloc cuMemAllocHost_v2",
    "reg": "cuMemHostRegister_v2",
    "pool": "cuMemPoolCreate cuDeviceGetDefaultMemPool cuDeviceGetMemPool",
    "vmh": "cuMemCreate",
    "va": "cuMemAddressReserve",
    "arr": "cuArrayCreate_v2 cuArray3DCreate_v2",
    "mip": "cuMipmappedArrayCreate",
    "tex": "cuTexObjectCreate",
    "surf": "cuSurfObjectCreate",
    "texref": "cuTexRefCreate",
    "graph": "cuGraphCreate",
    "node": "cuGraphAddEmptyNode cuGraphAddMemsetNode cuGraphAddHostNode cuGraphAddMemcpyNode cuGraphAddNode_v2",
    "exec": "cuGraphInstantiateWithFlags",
    "uobj": "cuUserObjectCreate",
    "cond": "cuGraphConditionalHandleCreate",
    "gctx": "cuGreenCtxCreate",
    "desc": "cuDevResourceGenerateDesc",
    "note": "cuDeviceRegisterAsyncNotification",
    "log": "cuLogsRegisterCallback",
}


@dataclass(frozen=True)
class Function:
    """One line of functions.txt."""

    group: str
    weight: int
    symbol: str
    parameters: tuple[str, ...]


def _lines(name: str) -> list[str]:
    lines = Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and line[0] != "#"]


FUNCTIONS = tuple(
    Function(group, int(weight), symbol, tuple(parameters))
    for group, weight, symbol, *parameters in map(str.split, _lines("functions.txt"))
)
#: What the names of arguments.txt stand for.
WORDS = dict(line.split(" ", 1) for line in _lines("arguments.txt"))

_CORE = {"ctx": 4, "dev": 2, "mem": 3, "copy": 2, "memset": 2, "stream": 3, "event": 3, "mod": 3, "lib": 3, "fun": 3, "link": 2}  # fmt: skip
#: Themes with their share of the programs and the weights of their groups; "core" has the functions of the first release.
THEMES: dict[str, tuple[int, dict[str, int]]] = {
    "core": (26, _CORE),
    "pools": (9, {"pool": 14, "stream": 1, "event": 1, "memset": 1, "copy": 1, "mem": 1, "ctx": 1, "ipc": 1}),
    "vmm": (8, {"vmm": 14, "pool": 1, "mem": 1, "memset": 1, "copy": 1, "ctx": 1}),
    "managed": (6, {"mng": 14, "stream": 1, "mem": 1, "copy": 1, "ctx": 1}),
    "arrays": (9, {"arr": 12, "tex": 8, "mem": 1, "ctx": 1}),
    "graphs": (14, {"graph": 10, "gnode": 10, "gexec": 8, "uobj": 3, "event": 1, "stream": 1, "mem": 1, "ctx": 1}),
    "capture": (9, {"cap": 12, "graph": 4, "stream": 3, "event": 4, "memset": 3, "copy": 3, "gexec": 3, "memop": 1, "launch": 1, "pool": 2, "ctx": 1, "mem": 1}),
    "functions": (8, {"occ": 10, "launch": 8, "fun": 5, "lib": 2, "mod": 2, "ctx": 1}),
    "others": (7, {"green": 8, "memop": 5, "prof": 2, "proc": 8, "ipc": 4, "peer": 4, "batch": 3, "ext": 1, "dev": 2, "stream": 1, "event": 1, "mem": 1}),
    # of seeds from 50,000 and 150,000 on alone (generate.py), in two threads, behind gates that the program opens
    "order": (0, {"gate": 40, "stream": 5, "event": 5, "cap": 3, "gexec": 4, "graph": 1, "gnode": 3, "pool": 3, "memset": 3, "copy": 3, "mem": 2, "ctx": 1}),
    "mixed": (4, dict.fromkeys((*_CORE, "pool", "vmm", "mng", "arr", "tex", "ipc", "cap", "graph", "gnode", "gexec", "uobj", "green", "occ", "launch", "memop", "prof", "peer", "proc", "batch"), 2)),
}  # fmt: skip

#: What may wait for work behind a closed gate, which makes all further calls those of a program without gates.
#: The words and counters that work writes, as the position of the word.
WRITES = {"cuStreamWriteValue32_v2": 2, "cuLaunchHostFunc": 3, "cuMemcpyDtoHAsync_v2": 1}
#: Calls that wait.
WAITING = frozenset(
    "cuStreamSynchronize cuEventSynchronize cuCtxSynchronize cuCtxSynchronize_v2 cuMemcpy cuMemcpyHtoD_v2 cuMemcpyDtoH_v2 "
    "cuMemcpyDtoD_v2 cuMemcpyPeer cuMemcpy2D_v2 cuMemcpy2DUnaligned_v2 cuMemcpy3D_v2 cuMemcpy3DPeer cuMemFree_v2 "
    "cuMemFreeHost cuMemHostUnregister cuMemPoolDestroy cuCtxDestroy_v2 cuCtxDetach cuDevicePrimaryCtxReset_v2 "
    "cuDevicePrimaryCtxRelease_v2 cuDeviceGraphMemTrim cuMemPoolTrimTo".split()
)
