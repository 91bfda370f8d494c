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


class Machine:
    """An emulated processor, and which register is what by its calling convention."""

    def __init__(self, name: str) -> None:
        import unicorn
        from unicorn import arm64_const, x86_const

        self.hook = unicorn.UC_HOOK_CODE
        if name == "aarch64":  # Procedure Call Standard for the Arm 64-bit Architecture
            self.emulator, prefix = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM), "UC_ARM64_REG_"
            used = [*(f"X{n}" for n in range(9)), *(f"Q{n}" for n in range(8))]
            kept, destroyed = [*used, "X29"], [*used, *(f"X{n}" for n in range(9, 18))]
            roles = {"first": "W0", "second": "X1", "result": "X0", "stack": "SP", "counter": "PC", "link": "X30"}
        else:  # System V ABI for AMD64: the address of the caller is on the stack
            self.emulator, prefix = unicorn.Uc(unicorn.UC_ARCH_X86, unicorn.UC_MODE_64), "UC_X86_REG_"
            used = ["RDI", "RSI", "RDX", "RCX", "R8", "R9", "RAX", "R10", *(f"XMM{n}" for n in range(8))]
            kept, destroyed = [*used, "RBP"], [*used, "R11"]
            roles = {"first": "EDI", "second": "RSI", "result": "RAX", "stack": "RSP", "counter": "RIP"}
        registers = {**vars(arm64_const), **vars(x86_const)}
        self.kept, self.destroyed = ([registers[prefix + name] for name in names] for names in (kept, destroyed))
        self.roles = {role: registers[prefix + name] for role, name in roles.items()}

    def read(self, role: str) -> int:
        return self.emulator.reg_read(self.roles[role])

    def write(self, role: str, value: int) -> None:
        self.emulator.reg_write(self.roles[role], value)

    @property
    def caller(self) -> int:
        """The address that the function returns to."""
        if "link" in self.roles:
            return self.read("link")
        return struct.unpack("<Q", self.emulator.mem_read(self.read("stack"), 8))[0]

    def enter(self) -> int:
        """Begin a call; returns the place of the stack."""
        stack = STACK + 0x8000
        if "link" in self.roles:
            self.write("link", CALLER)
        else:
            stack -= 8
            self.emulator.mem_write(stack, struct.pack("<Q", CALLER))
        self.write("stack", stack)
        return stack

    def leave(self) -> None:
        """Return from a call."""
        self.write("counter", self.caller)
        if "link" not in self.roles:
            self.write("stack", self.read("stack") + 8)


def call_twice(machine: Machine, symbols: dict[str, int], index: int, name: str) -> None:
    """Call one function, lazily and then through its slot; every register must arrive as it was."""
    emulator = machine.emulator
    before = {register: 0x1111 * (number + 1) for number, register in enumerate(machine.kept)}
    slot = symbols["stub_cudart_slots"] + 8 * index
    resolved = []

    def resolve(_emulator, address, _size, _data) -> None:
        if address != symbols["stub_cudart_resolve"]:
            return
        resolved.append((machine.read("first"), machine.read("second")))
        assert machine.read("stack") % 16 == (0 if "link" in machine.roles else 8)
        for register in machine.destroyed:
            emulator.reg_write(register, 0xDEAD)
        machine.write("result", TARGET)
        emulator.mem_write(slot, struct.pack("<Q", TARGET))
        machine.leave()

    hook = emulator.hook_add(machine.hook, resolve)
    for _ in range(2):
        for register, value in before.items():
            emulator.reg_write(register, value)
        stack = machine.enter()
        emulator.emu_start(symbols[name], TARGET, count=200)
        assert machine.read("counter") == TARGET
        assert {register: emulator.reg_read(register) for register in machine.kept} == before
        assert (machine.read("stack"), machine.caller) == (stack, CALLER)
    emulator.hook_del(hook)
    assert resolved == [(index, CALLER)], "resolved once, with its own number and the caller's address"


@pytest.mark.parametrize("name", ["aarch64", "x86_64"])
def test_registers_survive(name: str, catalog, tmp_path) -> None:
    """The first call and the later ones reach the target with every argument, the stack and the return address."""
    machine = Machine(name)
    symbols = load(machine.emulator, library(catalog, tmp_path, name), name)
    machine.emulator.mem_map(STACK, 0x10000)
    machine.emulator.mem_map(CALLER, 0x2000)
    functions = catalog.libraries["cudart"].functions
    for index in (0, 1, len(functions) - 1):
        call_twice(machine, symbols, index, functions[index].symbol)
