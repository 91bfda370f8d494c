"""Functions whose signature or structures changed between CUDA majors: callers of each, on libraries of each."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudalink.stubs import c_source

from .conftest import NOWHERE, compile_c, linked, loaded

#: A runtime that writes down how its graph functions were called. No real one instantiates without a GPU.
GRAPHS = """
#include <stdio.h>
#include <stddef.h>
int cudaRuntimeGetVersion(int *v) { *v = VERSION; return VERSION < 12000 ? 35 : 0; }
#if VERSION < 12000
int cudaGraphInstantiate(void **e, void *g, void **node, char *log, size_t size)
{
  *e = g;
  if (node) *node = (void *)0x77;
  if (log && size > 2) snprintf(log, size, "log");
  printf("five %d %d; ", node != NULL, log != NULL && size > 2);
  return VERSION / 1000;
}
#else
int cudaGraphInstantiate(void **e, void *g, unsigned long long flags)
{ *e = g; printf("three %llu; ", flags); return VERSION / 1000; }
struct params { unsigned long long flags; void *stream; void *node; int result; };
int cudaGraphInstantiateWithParams(void **e, void *g, struct params *p)
{ *e = g; p->node = (void *)0x77; printf("params %llu %d; ", p->flags, p->stream != NULL); return VERSION / 1000; }
#endif
#if VERSION >= 11040
int cudaGraphInstantiateWithFlags(void **e, void *g, unsigned long long flags)
{ *e = g; printf("flags %llu; ", flags); return VERSION / 1000; }
#endif
"""

CALLERS = {
    "three": """
        extern int cudaGraphInstantiate(void **, void *, unsigned long long);
        int main(void)
        {
          void *exec = NULL;
          int none = cudaGraphInstantiate(&exec, (void *)0x5, 0);
          int some = cudaGraphInstantiate(&exec, (void *)0x5, 9);
          printf("%d %d %p\\n", none, some, exec);
        }
    """,
    "five": """
        extern int cudaGraphInstantiate(void **, void *, void **, char *, size_t);
        int main(void)
        {
          void *exec = NULL, *node = (void *)0x1;
          char log[8] = "??";
          int none = cudaGraphInstantiate(&exec, (void *)0x5, NULL, NULL, 0);
          int some = cudaGraphInstantiate(&exec, (void *)0x5, &node, log, sizeof log);
          printf("%d %d %p %p '%s'\\n", none, some, exec, node, log);
        }
    """,
}


@pytest.fixture
def stub_for(once) -> Callable[[int], Path]:
    """Gives the runtime's stub for callers that are compiled with the headers of a major."""

    def build_for(headers: int) -> Path:
        def fill(folder: Path) -> None:
            c_source.build_stubs(["cudart"], folder, headers=headers)

        return once(f"stubs-for-{headers}", fill) / "libstub_cudart.so"

    return build_for


@pytest.mark.parametrize(
    ("headers", "caller", "version", "expected"),
    [
        (None, "three", 11080, "flags 0; flags 9; 11 11 0x5"),
        (None, "three", 12090, "flags 0; flags 9; 12 12 0x5"),
        (None, "three", 13000, "flags 0; flags 9; 13 13 0x5"),
        (None, "five", 11080, "flags 0; five 1 1; 11 11 0x5 0x77 'log'"),
        (None, "five", 12090, "flags 0; params 0 0; 12 12 0x5 0x77 ''"),
        (None, "five", 13000, "flags 0; params 0 0; 13 13 0x5 0x77 ''"),
        # before cudaGraphInstantiateWithFlags
        (None, "three", 11020, "five 0 0; 11 302 (nil)"),
        (None, "five", 11020, "five 0 0; five 1 1; 11 11 0x5 0x77 'log'"),
        # a stub that is built for one generation of callers does not look at the third argument, and loses no log
        (11, "five", 12090, "params 0 0; params 0 0; 12 12 0x5 0x77 ''"),
        (11, "five", 11080, "five 0 0; five 1 1; 11 11 0x5 0x77 'log'"),
        (13, "three", 11080, "flags 0; flags 9; 11 11 0x5"),
    ],
)
def test_graph_instantiate(headers, caller: str, version: int, expected: str, stubs, stub_for, run, tmp_path) -> None:
    """Callers of both generations reach every major with the signature that it has, and get their outputs."""
    real = compile_c(tmp_path / "real.so", GRAPHS, f"-DVERSION={version}")
    text = "#include <stdio.h>\n#include <stddef.h>\n" + CALLERS[caller]
    program = compile_c(tmp_path / "caller", text, *linked(stub_for(headers) if headers else stubs["cudart"]))
    assert run(program, CUDALINK_STUBS_CUDART=real).stdout.strip() == expected


#: Where some fields of cudaDeviceProp are, by major: offsetof on the headers of 11.8, 12.9 and 13.0.
FIELDS = {
    "totalGlobalMem": {11: 288, 12: 288, 13: 288},
    "clockRate": {11: 348, 12: 348},
    "multiProcessorCount": {11: 388, 12: 388, 13: 384},
    "computeMode": {11: 404, 12: 404},
    "asyncEngineCount": {11: 600, 12: 600, 13: 584},
    "maxThreadsPerMultiProcessor": {11: 624, 12: 624, 13: 604},
    "hostRegisterSupported": {12: 728, 13: 704},
}
SIZE = {11: 728, 12: 1032, 13: 1008}

PROPERTIES = """
#include <string.h>
#define FIELD(offset, value) do { int v = value; memcpy((char *)p + offset, &v, 4); } while (0)
int cudaRuntimeGetVersion(int *v) { *v = MAJOR * 1000; return 0; }
int cudaDeviceGetAttribute(int *v, int attribute, int device) { *v = 10000 + attribute; return device != 3; }
static int fill(void *p, int major, int device)
{
  memset(p, 0, major == 11 ? 728 : major == 12 ? 1032 : 1008);
  FILL
  return device == 3 ? 0 : 101;
}
#if MAJOR == 13
int cudaGetDeviceProperties(void *p, int device) { return fill(p, 13, device); }
int cudaGraphInstantiateWithParams(void) { return 0; }
#else
int cudaGetDeviceProperties(void *p, int device) { return fill(p, 11, device); }
#endif
#if MAJOR == 12
int cudaGetDeviceProperties_v2(void *p, int device) { return fill(p, 12, device); }
int cudaGraphInstantiateWithParams(void) { return 0; }
#endif
"""


def properties(stub: Path, symbol: str, size: int, run, real: Path) -> tuple[dict[int, int], bool]:
    """Ints by offset, and whether what lies behind the structure was left alone."""
    code = loaded(stub)
    code += f"""
import json, struct
room = ctypes.create_string_buffer(b"\\xaa" * 4096, 4096)
results = [getattr(stub, {symbol!r})(room, device) for device in (4, 3)]
ints = {{offset: struct.unpack_from("<i", room.raw, offset)[0] for offset in range(0, {size}, 4)}}
print(json.dumps([results, ints, set(room.raw[{size}:]) == {{0xAA}}]))
"""
    done = run(code, CUDALINK_STUBS_CUDART=real)
    assert done.returncode == 0, done.stderr
    results, ints, intact = json.loads(done.stdout)
    assert results == [101, 0]
    return {int(offset): value for offset, value in ints.items()}, intact


@pytest.mark.parametrize("major", [11, 12, 13])
@pytest.mark.parametrize("callers", [11, 12, 13])
def test_device_properties(callers: int, major: int, stubs, stub_for, run, tmp_path) -> None:
    """Callers of each major find each field where their headers say, and no byte behind the structure is written."""
    fill = "".join(
        f"if (major == {m}) FIELD({offset}, {1000 + number});"
        for number, offsets in enumerate(FIELDS.values())
        for m, offset in offsets.items()
    )
    real = compile_c(tmp_path / "real.so", PROPERTIES.replace("FILL", fill), f"-DMAJOR={major}")
    symbol = "cudaGetDeviceProperties_v2" if callers == 12 else "cudaGetDeviceProperties"
    stub = stub_for(11) if callers == 11 else stubs["cudart"]
    ints, intact = properties(stub, symbol, SIZE[callers], run, real)
    assert intact
    for number, (field, offsets) in enumerate(FIELDS.items()):
        if callers not in offsets:
            continue
        expected = 1000 + number
        if major not in offsets:  # gone from the library's structure: asked of it as an attribute, or unknown to it
            expected = {"clockRate": 10013, "computeMode": 10020, "hostRegisterSupported": 0}[field]
        assert ints[offsets[callers]] == expected, field


#: sizeof(struct cudaFuncAttributes) by the major of the headers; the shorter one is the beginning of the longer one.
ATTRIBUTES = {11: 56, 12: 144, 13: 144}

FUNCTION_ATTRIBUTES = """
#include <string.h>
int cudaFuncGetAttributes(void *attr, const void *function)
{
  if (!attr) return 1;
  memset(attr, 7, MAJOR == 11 ? 56 : 144);
  return function ? 0 : 98;
}
#if MAJOR > 11
int cudaGraphInstantiateWithParams(void) { return 0; }
#endif
"""


@pytest.mark.parametrize("major", [11, 12, 13, None])
@pytest.mark.parametrize("callers", [11, 12, 13])
def test_function_attributes(callers: int, major: int | None, stubs, stub_for, run, tmp_path) -> None:
    """The caller's structure is filled to its end, with zeros where the library has less, and nothing behind it."""
    real = NOWHERE if major is None else compile_c(tmp_path / "real.so", FUNCTION_ATTRIBUTES, f"-DMAJOR={major}")
    stub = stub_for(11) if callers == 11 else stubs["cudart"]
    code = loaded(stub)
    code += """
call = stub.cudaFuncGetAttributes
room = ctypes.create_string_buffer(bytes([0xAA]) * 512, 512)
print(call(None, None), call(room, None), call(room, ctypes.c_void_p(1)), room.raw.hex())
"""

    done = run(code, CUDALINK_STUBS_CUDART=real)
    assert done.returncode == 0, done.stderr
    size = ATTRIBUTES[callers]
    filled = 0 if major is None else min(size, ATTRIBUTES[major])
    expected = bytes([7] * filled).ljust(size, b"\0").ljust(512, b"\xaa")
    assert done.stdout.split() == [*(["303"] * 3 if major is None else ["1", "98", "0"]), expected.hex()]


@pytest.mark.parametrize(("hint", "answer"), [("cudaOccupancyMaxActiveClusters", "0 11080\n"), ("nothing", "35 -1\n")])
def test_runtime_version_without_a_driver(hint: str, answer: str, stubs, run, tmp_path) -> None:
    """CUDA 11's runtime asks the driver for its own version; the stub tells 11.8 by what the library exports."""
    silent = "int cudaRuntimeGetVersion(int *v) { (void)v; return 35; }\nint HINT(void) { return 0; }"
    code = loaded(stubs["cudart"]) + "v = ctypes.c_int(-1); print(stub.cudaRuntimeGetVersion(ctypes.byref(v)), v.value)"
    real = compile_c(tmp_path / "real.so", silent, f"-DHINT={hint}")
    assert run(code, CUDALINK_STUBS_CUDART=real).stdout == answer
