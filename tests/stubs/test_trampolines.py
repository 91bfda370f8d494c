"""The trampolines, instruction by instruction, on an emulated processor: also for the one that the tests do not run on.

Here the C function behind the first call is replaced by one that destroys every register that a function may destroy.
"""

import struct
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection

from pytest_cudalink.stubs import c_source

from .conftest import succeed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("unicorn") is None or find_spec("ziglang") is None,
        reason="needs the wheels unicorn and ziglang: 'nox -s tests-slow' brings them",
    ),
]

BASE, STACK, CALLER, TARGET = 0x10000000, 0x20000000, 0x30000000, 0x30001000
RELATIVE = {"aarch64": 1027, "x86_64": 8}


def library(catalog, folder: Path, machine: str) -> Path:
    """The stub of the runtime for a machine."""
    (stub,) = c_source.generate(catalog, ["cudart"], folder)
    output = folder / f"{machine}.so"
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-gnu.2.17", "-O2", "-fPIC", "-shared"]
    succeed(*zig, "-fvisibility=hidden", *stub.sources, "-ldl", "-o", output)
    return output


def load(emulator, path: Path, machine: str) -> dict[str, int]:
    """Map a library as the loader does; addresses by symbol."""
    with path.open("rb") as stream:
        elf = ELFFile(stream)
        size = max(s["p_vaddr"] + s["p_memsz"] for s in elf.iter_segments("PT_LOAD"))
        emulator.mem_map(BASE, (size + 0xFFFF) & ~0xFFFF)
        for segment in elf.iter_segments("PT_LOAD"):
            emulator.mem_write(BASE + segment["p_vaddr"], segment.data())
        for section in elf.iter_sections():
            if isinstance(section, RelocationSection):
                for relocation in section.iter_relocations():
                    if relocation["r_info_type"] == RELATIVE[machine]:
                        value = struct.pack("<Q", BASE + relocation["r_addend"])
                        emulator.mem_write(BASE + relocation["r_offset"], value)
        symbols = elf.get_section_by_name(".symtab")
        return {symbol.name: BASE + symbol["st_value"] for symbol in symbols.iter_symbols() if symbol["st_value"]}


def call_twice(emulator, registers: dict[str, object], symbols: dict[str, int], index: int, name: str) -> None:
    """Call one function, lazily and then through its slot; every register must arrive as it was."""
    names = registers["kept"]
    before = {register: 0x1111 * (number + 1) for number, register in enumerate(names)}
    slot = symbols["stub_cudart_slots"] + 8 * index
    resolved = []

    def resolve(machine, address, _size, _data) -> None:
        if address != symbols["stub_cudart_resolve"]:
            return
        resolved.append((machine.reg_read(registers["first"]), machine.reg_read(registers["second"])))
        assert machine.reg_read(registers["stack"]) % 16 == registers["misaligned"]
        for register in registers["destroyed"]:
            machine.reg_write(register, 0xDEAD)
        machine.reg_write(registers["result"], TARGET)
        machine.mem_write(slot, struct.pack("<Q", TARGET))
        registers["return"](machine)

    hook = emulator.hook_add(registers["hook"], resolve)
    for _ in range(2):
        for register, value in before.items():
            emulator.reg_write(register, value)
        stack = registers["enter"](emulator)
        emulator.emu_start(symbols[name], TARGET, count=200)
        assert emulator.reg_read(registers["counter"]) == TARGET
        assert {register: emulator.reg_read(register) for register in names} == before
        assert emulator.reg_read(registers["stack"]) == stack
        assert registers["link"](emulator) == CALLER
    emulator.hook_del(hook)
    assert resolved == [(index, CALLER)], "resolved once, with its own number and the caller's address"


def aarch64():
    """The machine, and which register is what (Procedure Call Standard for the Arm 64-bit Architecture)."""
    import unicorn
    from unicorn import arm64_const as c

    emulator = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
    integers = [getattr(c, f"UC_ARM64_REG_X{n}") for n in range(18)]
    vectors = [getattr(c, f"UC_ARM64_REG_Q{n}") for n in range(8)]

    def enter(machine) -> int:
        machine.reg_write(c.UC_ARM64_REG_SP, STACK + 0x8000)
        machine.reg_write(c.UC_ARM64_REG_X30, CALLER)
        return STACK + 0x8000

    return emulator, {
        "kept": [*integers[:9], *vectors, c.UC_ARM64_REG_X29],
        "link": lambda machine: machine.reg_read(c.UC_ARM64_REG_X30),
        "destroyed": [*integers, *vectors],
        "first": c.UC_ARM64_REG_W0,
        "second": c.UC_ARM64_REG_X1,
        "result": c.UC_ARM64_REG_X0,
        "stack": c.UC_ARM64_REG_SP,
        "misaligned": 0,
        "counter": c.UC_ARM64_REG_PC,
        "enter": enter,
        "return": lambda machine: machine.reg_write(c.UC_ARM64_REG_PC, machine.reg_read(c.UC_ARM64_REG_X30)),
        "hook": unicorn.UC_HOOK_CODE,
    }


def x86_64():
    """The machine, and which register is what (System V ABI for AMD64)."""
    import unicorn
    from unicorn import x86_const as c

    emulator = unicorn.Uc(unicorn.UC_ARCH_X86, unicorn.UC_MODE_64)
    integers = [getattr(c, f"UC_X86_REG_{name}") for name in ("RDI", "RSI", "RDX", "RCX", "R8", "R9", "RAX", "R10")]
    vectors = [getattr(c, f"UC_X86_REG_XMM{n}") for n in range(8)]

    def enter(machine) -> int:
        stack = STACK + 0x8000 - 8
        machine.mem_write(stack, struct.pack("<Q", CALLER))
        machine.reg_write(c.UC_X86_REG_RSP, stack)
        return stack

    def leave(machine) -> None:
        stack = machine.reg_read(c.UC_X86_REG_RSP)
        machine.reg_write(c.UC_X86_REG_RIP, struct.unpack("<Q", machine.mem_read(stack, 8))[0])
        machine.reg_write(c.UC_X86_REG_RSP, stack + 8)

    return emulator, {
        "kept": [*integers, *vectors, c.UC_X86_REG_RBP],
        "link": lambda machine: struct.unpack("<Q", machine.mem_read(machine.reg_read(c.UC_X86_REG_RSP), 8))[0],
        "destroyed": [*integers, *vectors, c.UC_X86_REG_R11],
        "first": c.UC_X86_REG_EDI,
        "second": c.UC_X86_REG_RSI,
        "result": c.UC_X86_REG_RAX,
        "stack": c.UC_X86_REG_RSP,
        "misaligned": 8,
        "counter": c.UC_X86_REG_RIP,
        "enter": enter,
        "return": leave,
        "hook": unicorn.UC_HOOK_CODE,
    }


@pytest.mark.parametrize("make", [aarch64, x86_64], ids=lambda function: function.__name__)
def test_registers_survive(make, catalog, tmp_path) -> None:
    """The first call and the later ones reach the target with every argument, the stack and the return address."""
    emulator, registers = make()
    symbols = load(emulator, library(catalog, tmp_path, make.__name__), make.__name__)
    emulator.mem_map(STACK, 0x10000)
    emulator.mem_map(CALLER, 0x2000)
    functions = catalog.libraries["cudart"].functions
    for index in (0, 1, len(functions) - 1):
        call_twice(emulator, registers, symbols, index, functions[index].symbol)
