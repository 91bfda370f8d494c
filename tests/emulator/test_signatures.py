"""The functions of the emulated driver have the signatures of cuda.h, and its structures have their layout.

C links a definition with whatever a caller declares. Both sides are compared by their debug information: that of the
library, and that of a file that includes cuda.h and points at each of its functions.
"""

import re
import subprocess
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from elftools.dwarf.die import DIE
from elftools.elf.elffile import ELFFile

from pytest_cudalink import emulator
from pytest_cudalink.base import compiler
from pytest_cudalink.base.tables import read_table

NATIVE = Path(emulator.__file__).parent / "native"
#: The assertion on a size names the structures of cuda.h that ours stands for.
ASSERTED = re.compile(r'sizeof\((\w+)\) == \d+[^"]*"([^"]+)"')
TRANSPARENT = ("DW_TAG_typedef", "DW_TAG_const_type", "DW_TAG_volatile_type", "DW_TAG_restrict_type")
RECORDS = ("DW_TAG_structure_type", "DW_TAG_union_type")
FLOAT = 4  # DW_ATE_float
ENUMS = Path(emulator.__file__).parents[1] / "data" / "emulator" / "enums.toml"
#: Ends and masks of enumerations, which each release may move.
GROWING = {
    *("CU_CTX_FLAGS_MASK", "CU_DEVICE_ATTRIBUTE_MAX", "CU_FUNC_ATTRIBUTE_MAX", "CU_JIT_NUM_OPTIONS", "CU_LIMIT_MAX"),
    *("CU_COREDUMP_LIGHTWEIGHT_FLAGS", "CU_DEV_RESOURCE_TYPE_MAX", "CU_LAUNCH_ATTRIBUTE_MAX"),
}


class Declarations(NamedTuple):
    """What the debug information of a file declares: functions, named types and enumerators."""

    functions: dict[str, DIE]
    types: dict[str, DIE]
    numbers: dict[str, int]


def target(die: DIE) -> DIE | None:
    """The type of a parameter, member or pointer, without its names and qualifiers; None for void."""
    while "DW_AT_type" in die.attributes:
        die = die.get_DIE_from_attribute("DW_AT_type")
        if die.tag not in TRANSPARENT:
            return die
    return None


def text(die: DIE, name: str) -> str:
    """A name in the debug information."""
    return die.attributes[name].value.decode() if name in die.attributes else ""


def number(die: DIE, name: str, default: int = 0) -> int:
    """A number in the debug information."""
    return int(die.attributes[name].value) if name in die.attributes else default


def declared(path: Path) -> Declarations:
    """Read what a library or an object file declares; pointers `at_NAME` stand for functions of a header."""
    functions: dict[str, DIE] = {}
    types: dict[str, DIE] = {}
    numbers: dict[str, int] = {}
    with path.open("rb") as file:
        elf = ELFFile(file)
        assert elf.has_dwarf_info(), f"{path} has no debug information; install the project editable"
        for unit in elf.get_dwarf_info().iter_CUs():
            # its weak forms of functions that no other file implements take no parameters
            if text(unit.get_top_DIE(), "DW_AT_name").endswith("/exports.c"):
                continue
            for die in unit.get_top_DIE().iter_children():
                name = text(die, "DW_AT_name")
                if die.tag == "DW_TAG_subprogram" and "DW_AT_external" in die.attributes:
                    if "DW_AT_low_pc" in die.attributes:
                        functions[name] = die
                elif die.tag == "DW_TAG_variable" and name.startswith("at_"):
                    functions[name.removeprefix("at_")] = target(target(die))
                elif die.tag == "DW_TAG_typedef" and target(die) is not None:
                    types[name] = target(die)
                elif die.tag == "DW_TAG_enumeration_type":
                    numbers |= {
                        text(node, "DW_AT_name"): number(node, "DW_AT_const_value") for node in die.iter_children()
                    }
    return Declarations(functions, types, numbers)


def leaves(die: DIE, offset: int = 0) -> Iterator[tuple[int, DIE]]:
    """Each member of a structure that is not one itself, with its place."""
    if die.tag == "DW_TAG_array_type":
        element = target(die)
        (bounds,) = (child for child in die.iter_children() if child.tag == "DW_TAG_subrange_type")
        for at in range(number(bounds, "DW_AT_upper_bound", -1) + 1):
            yield from leaves(element, offset + at * size(element))
    elif die.tag in RECORDS:
        for member in die.iter_children():
            if member.tag == "DW_TAG_member":
                yield from leaves(target(member), offset + number(member, "DW_AT_data_member_location"))
    else:
        yield offset, die


def size(die: DIE) -> int:
    """The bytes of a type."""
    if die.tag != "DW_TAG_array_type":
        return number(die, "DW_AT_byte_size", 8)
    (bounds,) = (child for child in die.iter_children() if child.tag == "DW_TAG_subrange_type")
    return size(target(die)) * (number(bounds, "DW_AT_upper_bound", -1) + 1)


def opaque(die: DIE | None) -> bool:
    """Whether a type says nothing: void, or a structure without members."""
    return die is None or "DW_AT_declaration" in die.attributes


def kind(die: DIE) -> str:
    """What a caller must pass: a pointer, a structure, or a number with its size."""
    if die.tag == "DW_TAG_pointer_type":
        return "a pointer"
    if die.tag in ("DW_TAG_subroutine_type", "DW_TAG_subprogram"):
        return "a function"
    if die.tag in RECORDS or die.tag == "DW_TAG_array_type":
        return f"structure of {size(die)} bytes"
    return f"{'float' if number(die, 'DW_AT_encoding') == FLOAT else 'integer'} of {size(die)} bytes"


def differences(ours: DIE | None, theirs: DIE | None, pairs: frozenset[tuple[int, int]] = frozenset()) -> Iterator[str]:
    """In what a type differs from one of cuda.h, signedness and names aside; `pairs` ends circles of pointers."""
    if opaque(ours) or opaque(theirs):
        return
    pair = (ours.offset, theirs.offset)
    if pair in pairs:
        return
    pairs |= {pair}
    if kind(ours) != kind(theirs):
        yield f"{kind(ours)}, not {kind(theirs)}"
    elif ours.tag == "DW_TAG_pointer_type":
        yield from (f"points to {difference}" for difference in differences(target(ours), target(theirs), pairs))
    elif ours.tag == "DW_TAG_subroutine_type":
        yield from signature_differences(ours, theirs, pairs)
    elif ours.tag in RECORDS:
        places: dict[int, list[DIE]] = {}
        for place, leaf in leaves(theirs):
            places.setdefault(place, []).append(leaf)
        for place, leaf in leaves(ours):
            # bytes are kept as they are, and a newer release may use what an older one reserves
            if size(leaf) > 1 and not any(
                size(node) == 1 or not list(differences(leaf, node, pairs)) for node in places.get(place, ())
            ):
                kinds = " or ".join(map(kind, places.get(place, ()))) or "nothing"
                yield f"a structure with {kind(leaf)} at byte {place}, not {kinds}"


def signature_differences(ours: DIE, theirs: DIE, pairs: frozenset[tuple[int, int]] = frozenset()) -> Iterator[str]:
    """In what a function differs: its result, the number of its parameters, each parameter."""
    own, given = (
        [target(n) for n in die.iter_children() if n.tag == "DW_TAG_formal_parameter"] for die in (ours, theirs)
    )
    if len(own) != len(given):
        yield f"it has {len(own)} of {len(given)} parameters"
    yield from (f"result: {difference}" for difference in differences(target(ours), target(theirs), pairs))
    for place, (mine, other) in enumerate(zip(own, given, strict=False), 1):
        yield from (f"parameter {place}: {difference}" for difference in differences(mine, other, pairs))


def compiled(source: Path, text: str, *flags: str) -> Declarations:
    """What a C file declares and defines."""
    source.write_text(text, encoding="utf-8")
    made = source.with_suffix(".o")
    keep = ("-g", "-fno-eliminate-unused-debug-types", "-Wno-deprecated-declarations")
    command = [*compiler.find_compiler(), *keep, *flags, "-c", str(source), "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return declared(made)


def pointers(names: Iterable[str]) -> str:
    """C that gives functions without a body debug information: a pointer to each."""
    return "".join(f"__typeof__({name}) *at_{name};\n" for name in sorted(names))


def problems(ours: Declarations, theirs: Declarations, asserted: Iterable[tuple[str, str]]) -> list[str]:
    """In what functions and pairs of structures, each ours and theirs, differ; those of other releases are left out."""
    faults = [
        f"{name}: {difference}"
        for name in sorted(ours.functions.keys() & theirs.functions.keys())
        for difference in signature_differences(ours.functions[name], theirs.functions[name])
    ]
    return faults + [
        f"{mine}, {name}: {difference}"
        for mine, name in asserted
        if name in theirs.types
        for difference in differences(ours.types[mine], theirs.types[name])
    ]


#: What is said of a function of ours that takes the place of another one of cuda.h: what makes a difference is seen.
DIFFERENT = {
    ("cuDriverGetVersion", "cuInit"): ["parameter 1: a pointer, not integer of 4 bytes"],
    ("cuDeviceGet", "cuDeviceGetCount"): ["it has 2 of 1 parameters"],
    ("cuDeviceGetCount", "cuCtxGetCurrent"): ["parameter 1: points to integer of 4 bytes, not a pointer"],
    ("cuMemcpy2D_v2", "cuMemcpy3D_v2"): ["parameter 1: points to structure of 128 bytes, not structure of 200 bytes"],
}


def differing(ours: Declarations, theirs: Declarations, mine: str, other: str) -> list[str]:
    """In what a function differs from one of cuda.h."""
    return list(signature_differences(ours.functions[mine], theirs.functions[other]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "least"),
    [
        ("12.0", 320),
        pytest.param("12.9", 389, marks=pytest.mark.weekly),
        pytest.param("13.0", 393, marks=pytest.mark.weekly),
        ("13.5", 405),
    ],
)
def test_signatures_and_layouts(version, least, toolchain, tmp_path) -> None:
    """Each function takes what the header of a release says, in all its forms; structures and numbers are its own."""
    ours = declared(emulator.library_folder() / "libcuda.so.1")
    twins = read_table("emulator/functions.toml")["twins"]
    ours.functions.update({name: ours.functions[other] for name, other in twins.items()})
    asserted = [
        (mine, name)
        for file in sorted(NATIVE.glob("*.[ch]"))
        for mine, names in ASSERTED.findall(file.read_text(encoding="utf-8"))
        for name in names.split(", ")
        if not name.startswith("nvml")
    ]
    include = toolchain(version) / "include"
    header = re.sub(r"/\*.*?\*/|//[^\n]*", "", (include / "cuda.h").read_text(encoding="utf-8"), flags=re.DOTALL)
    names = re.findall(r"^\s*CUresult\s+CUDAAPI\s+(cu\w+)\s*\(", header, re.MULTILINE)
    # the forms that the header's own names stand for no longer are declared with it
    text = f"#define __CUDA_API_VERSION_INTERNAL\n#include <cuda.h>\n{pointers(set(names))}"
    theirs = compiled(tmp_path / "header.c", text, f"-I{include}")
    assert problems(ours, theirs, asserted) == []
    assert [differing(ours, theirs, *pair) for pair in DIFFERENT] == list(DIFFERENT.values())
    flat, signals = (theirs.types[f"CUDA_{name}"] for name in ("ARRAY_DESCRIPTOR", "EXT_SEM_SIGNAL_NODE_PARAMS"))
    assert next(differences(flat, signals)) == "a structure with integer of 8 bytes at byte 0, not a pointer"
    compared = len(ours.functions.keys() & theirs.functions.keys())
    assert compared >= least
    table = tomllib.loads(ENUMS.read_text(encoding="utf-8"))
    known = {name: value & 0xFFFFFFFF for names in table.values() for name, value in names.items()}
    numbers = {name: value & 0xFFFFFFFF for name, value in theirs.numbers.items() if name.startswith("CU")}
    changed = {name for name, value in numbers.items() if known.get(name) != value}
    assert changed <= GROWING
    if version == "13.5":
        assert not changed
        assert [name for _, name in asserted if name not in theirs.types] == []
