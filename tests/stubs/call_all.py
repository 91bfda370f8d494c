"""Call every function of one stub with valid memory; prints what each returned and left behind, as JSON.

usage: call_all.py STUB LIBRARY
"""

import ctypes
import json
import re
import sys

from pytest_cudalink.stubs.catalog import load_catalog

ROOM, FILL = 4096, 0xAA
SIZES = {"char": 1, "size_t": 8, "CUdeviceptr": 8, "cuuint64_t": 8, "unsigned long long": 8, "float": 4, "int": 4}


def opaque(meaning: str) -> type[ctypes.Structure] | None:
    """The type of a structure of the catalog."""
    if match := re.search(r"char opaque\[(\d+)\]", meaning):
        return type("Opaque", (ctypes.Structure,), {"_fields_": [("bytes", ctypes.c_char * int(match[1]))]})
    if meaning.startswith("struct { unsigned int x, y, z; }"):
        return type("Dim3", (ctypes.Structure,), {"_fields_": [(name, ctypes.c_uint) for name in "xyz"]})
    return None


def size_of(type_: str, types: dict[str, str]) -> int:
    """Size in bytes of what an output points to."""
    if type_.endswith("*"):
        return 8
    meaning = types.get(type_, type_)
    if structure := opaque(meaning):
        return ctypes.sizeof(structure)
    return 8 if meaning.endswith("*") else SIZES.get(meaning, SIZES.get(type_, 4))


def main(path: str, name: str) -> None:
    """Call and print."""
    catalog = load_catalog()
    types = dict(catalog.types)
    library = catalog.libraries[name]
    stub = ctypes.CDLL(path)
    results = {}
    for function in library.functions:
        call = getattr(stub, function.symbol)
        text = function.result.endswith("*")
        call.restype = ctypes.c_char_p if text else ctypes.c_int
        buffers, arguments = {}, []
        for parameter in function.parameters:
            if parameter.is_pointer:
                buffers[parameter.name] = ctypes.create_string_buffer(bytes([FILL]) * ROOM, ROOM)
                arguments.append(ctypes.byref(buffers[parameter.name]))
            elif structure := opaque(types.get(parameter.type, "")):
                arguments.append(structure())
            else:
                arguments.append(ctypes.c_longlong(64))
        result = call(*arguments)
        sizes = {}
        for output in function.outputs:
            pointee = next(p.pointee for p in function.parameters if p.name == output.name)
            sizes[output.name] = output.size or size_of(pointee, types) * (64 if output.length else 1)
        zeroed, touched = [], []
        for parameter, buffer in buffers.items():
            size = sizes.get(parameter, 0)
            if size and buffer.raw[:size] == bytes(size):
                zeroed.append(parameter)
            if set(buffer.raw[size:]) != {FILL}:
                touched.append(parameter)
        answer = None
        if function.answer and not text:
            pointer = ctypes.cast(buffers[function.outputs[0].name], ctypes.POINTER(ctypes.c_char_p))[0]
            answer = pointer.decode()
        results[function.symbol] = {
            "result": result.decode() if text else result,
            "zeroed": sorted(zeroed),
            "touched": touched,
            "answer": answer,
        }
    print(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
