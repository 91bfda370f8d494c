"""Make ``stubs_catalog.toml`` from the headers and libraries of several CUDA releases.

Each argument is ``RELEASE=FOLDER``, a folder with the runtime, NVRTC and compiler (for ``crt/``) wheels of one release,
unpacked by ``uv pip install --no-deps --target FOLDER``; the last one is the newest. Prototypes and exact symbol names
come from the preprocessed headers, ``since`` from ``cudaTypedefs.h`` (driver) or from the oldest release given that
exports the symbol (runtime, NVRTC), ``until`` from the newest. The text `WANTED` lists the functions, their tiers and
their output parameters. Needs a C compiler.

    python -m tools.make_catalog 11.8=w118 12.0=w120 12.9=w129 13.0=w130 > stubs_catalog.toml
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

#: ``tier name(outputs)``; a release in brackets takes the prototype from that release's headers.
WANTED = {
    "cuda": """
core cuGetErrorName(pStr) cuGetErrorString(pStr) cuCtxGetDevice(device) cuCtxGetLimit(pvalue) cuCtxSetLimit()
core cuCtxResetPersistingL2Cache() cuDeviceGetName(name[len]) cuDeviceGetAttribute(pi) cuModuleLoadData(module)
core cuModuleLoadDataEx(module) cuModuleUnload() cuModuleGetFunction(hfunc) cuModuleGetGlobal(dptr bytes)
core cuFuncSetAttribute() cuLaunchKernel() cuLaunchKernelEx() cuLaunchCooperativeKernel() cuMemsetD32()
core cuStreamSetAttribute()
core cuInit() cuDriverGetVersion(driverVersion) cuDeviceGet(device) cuDeviceGetCount(count) cuDeviceTotalMem(bytes)
core cuDevicePrimaryCtxRetain(pctx) cuDevicePrimaryCtxRelease() cuCtxGetCurrent(pctx) cuCtxSetCurrent()
core cuCtxPushCurrent() cuCtxPopCurrent(pctx) cuCtxSynchronize() cuMemAlloc(dptr) cuMemFree() cuMemGetInfo(free total)
core cuMemcpyHtoD() cuMemcpyDtoH() cuMemcpyHtoDAsync() cuMemcpyDtoHAsync() cuMemcpyDtoD() cuMemcpyDtoDAsync()
core cuMemsetD8() cuMemsetD8Async() cuMemsetD32Async() cuMemHostAlloc(pp) cuMemFreeHost() cuStreamCreate(phStream)
core cuStreamDestroy() cuStreamSynchronize() cuStreamQuery() cuStreamWaitEvent() cuEventCreate(phEvent)
core cuEventDestroy() cuEventRecord() cuEventSynchronize() cuEventQuery() cuFuncGetAttribute(pi)
core cuOccupancyMaxActiveBlocksPerMultiprocessor(numBlocks) cuLinkCreate(stateOut) cuLinkAddData()
core cuLinkAddFile() cuLinkComplete(cubinOut sizeOut) cuLinkDestroy()
optional cuTensorMapEncodeTiled(tensorMap) cuTensorMapEncodeIm2col(tensorMap) cuLibraryLoadData(library)
optional cuLibraryUnload() cuLibraryGetKernel(pKernel) cuKernelGetFunction(pFunc) cuGetProcAddress(pfn symbolStatus)
""",
    "cudart": """
core cudaGetErrorString() cudaGetLastError() cudaPeekAtLastError() cudaSetDevice() cudaGetDevice(device)
core cudaGetDeviceCount(count) cudaDeviceGetAttribute(value) cudaGetDeviceProperties(prop) cudaMemGetInfo(free total)
core cudaMalloc(devPtr) cudaFree() cudaMallocHost(ptr) cudaFreeHost() cudaMemset() cudaMemsetAsync() cudaMemcpy()
core cudaMemcpyAsync() cudaMemcpyPeerAsync() cudaStreamCreate(pStream) cudaStreamCreateWithFlags(pStream)
core cudaStreamDestroy() cudaStreamSynchronize() cudaStreamWaitEvent() cudaEventCreate(event) cudaEventDestroy()
core cudaEventRecord() cudaEventSynchronize() cudaEventElapsedTime(ms) cudaDeviceSynchronize()
core cudaGetErrorName() cudaRuntimeGetVersion(runtimeVersion) cudaDriverGetVersion(driverVersion)
core cudaEventCreateWithFlags(event) cudaEventQuery() cudaStreamQuery() cudaStreamCreateWithPriority(pStream)
core cudaHostAlloc(pHost) cudaHostRegister() cudaHostUnregister() cudaMallocManaged(devPtr) cudaMemcpy2D()
core cudaMemcpy2DAsync() cudaMemcpyPeer() cudaFuncGetAttributes(attr) cudaLaunchKernel()
core cudaDeviceCanAccessPeer(canAccessPeer)
core cudaDeviceEnablePeerAccess() cudaDeviceReset() cudaOccupancyMaxActiveBlocksPerMultiprocessor(numBlocks)
optional cudaStreamBeginCapture() cudaStreamEndCapture(pGraph) cudaGraphInstantiate(pGraphExec) cudaGraphLaunch()
optional cudaGraphDestroy() cudaGraphExecDestroy() cudaIpcGetMemHandle(handle) cudaIpcOpenMemHandle(devPtr)
optional cudaIpcCloseMemHandle() cudaFuncSetAttribute()
optional cudaGetDeviceProperties_v2[12.9](prop:1032) cudaStreamIsCapturing(pCaptureStatus)
optional cudaGraphInstantiateWithFlags(pGraphExec) cudaMallocAsync(devPtr) cudaFreeAsync() cudaLaunchKernelExC()
optional cudaGraphUpload()
""",
    "nvrtc": """
core nvrtcGetErrorString() nvrtcVersion(major minor) nvrtcCreateProgram(prog) nvrtcDestroyProgram()
core nvrtcCompileProgram() nvrtcGetPTXSize(ptxSizeRet) nvrtcGetPTX() nvrtcGetProgramLogSize(logSizeRet)
core nvrtcGetProgramLog() nvrtcGetCUBINSize(cubinSizeRet) nvrtcGetCUBIN() nvrtcAddNameExpression()
core nvrtcGetLoweredName(lowered_name) nvrtcGetNumSupportedArchs(numArchs) nvrtcGetSupportedArchs()
optional nvrtcGetLTOIRSize(LTOIRSizeRet) nvrtcGetLTOIR() nvrtcGetOptiXIRSize(optixirSizeRet) nvrtcGetOptiXIR()
""",
}

#: Further keys of single functions, as TOML.
EXTRA = {
    "cuGetErrorName": 'answer = "name"',
    "cuGetErrorString": 'answer = "text"',
    "cudaGetErrorName": 'answer = "name"',
    "cudaGetErrorString": 'answer = "text"',
    "nvrtcGetErrorString": 'answer = "text"',
    "nvrtcGetLTOIR": 'older = "nvrtcGetNVVM"',
    "nvrtcGetLTOIRSize": 'older = "nvrtcGetNVVMSize"',
    "cudaGraphInstantiate": 'adapter = "graph_instantiate"',
    "cudaRuntimeGetVersion": 'adapter = "runtime_version"',
    "cudaFuncGetAttributes": 'adapter = "function_attributes"',
    "cudaGetDeviceProperties": 'adapter = "properties"',
    "cudaGetDeviceProperties_v2": 'older = "cudaGetDeviceProperties"\nadapter = "properties_v2"',
}

#: The type of every parameter and result, for C without CUDA headers. Sizes are those of CUDA 13; alignments are the
#: smallest of all releases. The tests compare both with the headers of each release.
TYPES = {
    "int": """CUresult CUdevice CUdevice_attribute CUfunction_attribute CUlimit CUstreamAttrID CUjitInputType
        CUjit_option CUlibraryOption CUtensorMapDataType CUtensorMapInterleave CUtensorMapSwizzle
        CUtensorMapL2promotion CUtensorMapFloatOOBfill CUdriverProcAddressQueryResult cudaError_t
        cudaMemcpyKind cudaDeviceAttr cudaFuncAttribute cudaStreamCaptureMode cudaStreamCaptureStatus nvrtcResult""",
    "unsigned int": "cuuint32_t",
    "unsigned long long": "CUdeviceptr cuuint64_t",
    "handle": """CUcontext CUmodule CUfunction CUstream CUevent CUlinkState CUlibrary CUkernel cudaStream_t cudaEvent_t
        cudaGraph_t cudaGraphExec_t cudaGraphNode_t nvrtcProgram""",
    "opaque": "CUlaunchConfig CUstreamAttrValue cudaLaunchConfig_t",
    "struct { char opaque[64]; } __attribute__((aligned(1)))": "cudaIpcMemHandle_t",
    "struct { char opaque[128]; } __attribute__((aligned(64)))": "CUtensorMap",
    "struct { char opaque[144]; } __attribute__((aligned(8)))": "cudaFuncAttributes",
    "struct { char opaque[1008]; } __attribute__((aligned(8)))": "cudaDeviceProp",
    "struct { unsigned int x, y, z; }": "dim3",
}

#: The types that differ in the headers of an older major.
TYPES_BY_HEADERS = {
    11: {
        "struct { char opaque[56]; } __attribute__((aligned(8)))": "cudaFuncAttributes",
        "struct { char opaque[728]; } __attribute__((aligned(8)))": "cudaDeviceProp",
    },
    12: {"struct { char opaque[1032]; } __attribute__((aligned(8)))": "cudaDeviceProp"},
}

#: The libraries: written by hand. Wheels and names newest first; paths are below site-packages.
HEAD = """\
# What the stubs export. Made by tools/make_catalog.py from the headers and libraries of CUDA 11.8, 12.0, 12.9 and 13.0.
#
# libraries.NAME
#   stem             the library's name without version; a mangled copy (STEM-HASH.so.N) in the process counts too
#   names            SONAMEs, newest first: searched in the process, in CUDA_PATH, by the loader
#   wheels           files below site-packages, newest first
#   homes            whether toolkits (CUDA_PATH, CUDA_HOME, /usr/local/cuda*) contain it
#   folders          further folders of the system
#   version          function that returns the version: by one int (1000 * major + 10 * minor) or by two
#   hint             a symbol that implies the version (1000 * major + 10 * minor) where the function does not answer
#   companion        file, with .MAJOR.MINOR of its version, that the library opens from its own folder
#   missing_library  result of every function when there is no library
#   missing_symbol   result of a function that the library lacks
#   results          names that the error-string functions return without a library
# functions.LIBRARY.NAME
#   prototype        as in the newest header; the name in it is the exact symbol that is exported and looked up
#   symbol           given where the headers map NAME to a versioned entry point
#   tier             core or optional: describe() reports the tiers of missing functions as degraded
#   since, until     first and last CUDA release with it; 11.8 may mean earlier for cudart and nvrtc
#   out              parameters that are zeroed on failure; NAME[LENGTH] for a buffer, NAME:BYTES for an exact size
#   error            result instead of the library's missing_library and missing_symbol
#   older            symbol with the same signature to use where the library lacks the first one
#   answer           the function returns the text or name of an error, also without a library
#   adapter          hand-written C in native/adapters.h that stands between caller and library
# types.NAME: the definition of a CUDA type in C without CUDA headers
# headers.MAJOR.NAME: the same for callers compiled with the headers of that CUDA major (--headers)

[libraries.cuda]
stem = "libcuda"
names = ["libcuda.so.1"]
wheels = []
homes = false
folders = ["/usr/lib/wsl/lib"]
version = "cuDriverGetVersion"
missing_library = 303
missing_symbol = 302
[libraries.cuda.results]
0 = "CUDA_SUCCESS"
302 = "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND"
303 = "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED"

[libraries.cudart]
stem = "libcudart"
names = ["libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"]
wheels = [
  "nvidia/cu13/lib/libcudart.so.13",
  "nvidia/cuda_runtime/lib/libcudart.so.12",
  "nvidia/cuda_runtime/lib/libcudart.so.11.0",
]
homes = true
folders = []
version = "cudaRuntimeGetVersion"
hint = { symbol = "cudaOccupancyMaxActiveClusters", version = 11080 }
missing_library = 303
missing_symbol = 302
results = { 0 = "cudaSuccess", 302 = "cudaErrorSharedObjectSymbolNotFound", 303 = "cudaErrorSharedObjectInitFailed" }

[libraries.nvrtc]
stem = "libnvrtc"
names = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so.11.1", "libnvrtc.so.11.0", "libnvrtc.so"]
wheels = [
  "nvidia/cu13/lib/libnvrtc.so.13",
  "nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
  "nvidia/cuda_nvrtc/lib/libnvrtc.so.11.2",
]
homes = true
folders = []
version = "nvrtcVersion"
companion = "libnvrtc-builtins.so"
missing_library = 11
missing_symbol = 11
results = { 0 = "NVRTC_SUCCESS", 11 = "NVRTC_ERROR_INTERNAL_ERROR" }

"""

HEADERS = {"cuda": "cuda.h", "cudart": "cuda_runtime_api.h", "nvrtc": "nvrtc.h"}
LIBRARIES = {"cudart": "libcudart.so.*", "nvrtc": "libnvrtc.so.*"}


class Release:
    """The headers and libraries of one CUDA release."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        with tempfile.TemporaryDirectory(prefix="cudalink-catalog-") as together:
            include = Path(together)
            for header in folder.rglob("include/**/*.h"):
                inside = header.as_posix().rpartition("/include/")[2]
                (include / inside).parent.mkdir(parents=True, exist_ok=True)
                (include / inside).write_bytes(header.read_bytes())
            self.text = {key: self._preprocess(include, header) for key, header in HEADERS.items()}
            self.macros = {key: self._macros(include, header) for key, header in HEADERS.items()}
            self.typedefs = (include / "cudaTypedefs.h").read_text(encoding="utf-8", errors="replace")
        self.exports = {key: self._exports(next(folder.rglob(name))) for key, name in LIBRARIES.items()}

    @staticmethod
    def _run(*command: str, stdin: str = "") -> str:
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=True).stdout

    def _preprocess(self, include: Path, header: str) -> str:
        return re.sub(r"\s+", " ", self._run("cc", "-E", "-P", f"-I{include}", "-", stdin=f"#include <{header}>\n"))

    def _macros(self, include: Path, header: str) -> dict[str, str]:
        text = self._run("cc", "-E", "-dM", f"-I{include}", "-", stdin=f"#include <{header}>\n")
        return dict(re.findall(r"^#define (\w+) (?:__CUD\w+_PT[DS]S?Z?\()?(\w+)\)?$", text, re.MULTILINE))

    def _exports(self, library: Path) -> set[str]:
        lines = self._run("nm", "-D", "--defined-only", str(library)).splitlines()
        return {line.split()[-1].partition("@")[0] for line in lines}

    def prototype(self, library: str, symbol: str) -> str | None:
        """The declaration of one symbol on one line, or None."""
        if match := re.search(rf"\b([\w ]+?[ *]+){symbol}\s*\(([^;{{]*)\)\s*;", self.text[library]):
            result, parameters = match[1].replace("extern", "").strip(), re.sub(r"\s+", " ", match[2]).strip()
            parameters = re.sub(r"__attribute__ ?\(\([^)]*\)\)", "", parameters)
            result = re.sub(r" *(\*+)$", r" \1", result)
            separator = "" if result.endswith("*") else " "
            return re.sub(r" +([,)])", r"\1", f"{result}{separator}{symbol}({parameters})")
        return None


def driver_since(name: str, symbol: str, releases: list[Release]) -> str:
    """The release that introduced a driver entry point, from the versioned typedefs."""
    versions = sorted({int(v) for r in releases for v in re.findall(rf"PFN_{name}_v(\d+)\)", r.typedefs)})
    suffix = re.search(r"_v(\d+)$", symbol)
    number = versions[int(suffix[1]) - 1 if suffix and len(versions) > 1 else 0]
    return f"{number // 1000}.{number % 1000 // 10}"


def meanings(types: dict[str, str]) -> str:
    """Types as TOML, a line each."""
    lines = []
    for kind, names in types.items():
        for name in names.split():
            meaning = {"handle": f"struct {name}_ *", "opaque": f"struct {name}_"}.get(kind, kind)
            lines.append(f'{name} = "{meaning}"\n')
    return "".join(lines)


def main(arguments: list[str]) -> None:
    """Write the catalog's types and functions to standard output."""
    releases = [Release(name, Path(folder)) for name, folder in (word.split("=") for word in arguments)]
    write = sys.stdout.write
    write(HEAD)
    write("[types]\n" + meanings(TYPES))
    for major, types in TYPES_BY_HEADERS.items():
        write(f"\n[headers.{major}]\n" + meanings(types))
    for library, text in WANTED.items():
        for line in text.strip().splitlines():
            tier, _, rest = line.partition(" ")
            for name, release, outputs in re.findall(r"(\w+)(?:\[([\d.]+)\])?\(([^)]*)\)", rest):
                source = next(r for r in releases if r.name == release) if release else releases[-1]
                write("\n" + entry(library, name, tier, outputs.split(), source=source, releases=releases))


def entry(library: str, name: str, tier: str, outputs: list[str], *, source: Release, releases: list[Release]) -> str:
    """The table of one function; a prototype that differs between releases is reported on standard error."""
    symbol = source.macros[library].get(name, name)
    prototype = source.prototype(library, symbol)
    assert prototype, name
    for other in releases:
        theirs = other.prototype(library, other.macros[library].get(name, name))
        if theirs and theirs != prototype:
            sys.stderr.write(f"{name} differs in {other.name}: {theirs}\n")
    lines = [f"[functions.{library}.{name}]", f'prototype = "{prototype}"', f'tier = "{tier}"']
    if library == "cuda":
        lines.append(f'since = "{driver_since(name, symbol, releases)}"')
    else:
        known = [r.name for r in releases if symbol in r.exports[library]]
        lines.append(f'since = "{known[0]}"')
        if known[-1] != releases[-1].name:
            lines.append(f'until = "{known[-1]}"')
    if symbol != name:
        lines.append(f'symbol = "{symbol}"')
    if outputs:
        lines.append(f"out = {outputs!r}".replace("'", '"'))
    if name in EXTRA:
        lines.append(EXTRA[name])
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(sys.argv[1:])
