"""The bundled linker with one lifetime fault of the field put into it; prints at how many links it was noticed.

    mutants.py FAULTS ORDERS MEMORIES LINKS

FAULTS are none, logs (log buffers dropped after complete), values (option values released after create) or early (all
released before destroy). ORDERS are some of close, collect (garbage collection of a cycle) and failed (the link fails,
then close). MEMORIES are mapped (pages of its own) and malloc. Commas separate several.
"""

import ctypes
import gc
import itertools
import json
import sys

from pytest_cudalink.emulator import preload
from pytest_cudalink.linker import Linker, LinkerOptions, LinkError, sample
from pytest_cudalink.linker.backends import OPENERS
from pytest_cudalink.linker.backends.driver import DriverLinkState, MappedBlock

faults, orders, memories = (words.split(",") for words in sys.argv[1:4])
links = int(sys.argv[4])

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]


class MallocBlock:
    """Memory as most programs have it."""

    def __init__(self, size):
        self.address = libc.malloc(size)
        ctypes.memset(self.address, 0, size)

    def release(self):
        """Give it back; once."""
        address, self.address = self.address, None
        if address:
            libc.free(address)


class Mutant(DriverLinkState):
    """The state with the fault."""

    def __init__(self, options):
        self._dropped = False
        super().__init__(options, MallocBlock if memory == "malloc" else MappedBlock)

    def _create(self, options):
        super()._create(options)
        if fault == "values":
            self._drop(self._blocks[-1])

    def _drop(self, *blocks):
        self._dropped = True
        for block in blocks:
            block.release()
            self._blocks.remove(block)

    def read_logs(self):
        if not self._dropped:
            super().read_logs()

    def complete(self, target):
        try:
            return super().complete(target)
        finally:
            if fault == "logs":
                self._drop(self._info, self._error)

    def close(self):
        if fault == "early":
            self.read_logs()
            self._drop(*self._blocks)
        super().close()


OPENERS["driver"] = Mutant
control = preload.emulated_driver()
control.start_watching()
main, user = sample.compile_modules("ptx", "sm_90")
results = {}
for fault, memory, order in itertools.product(faults, memories, orders):
    red, options = 0, set()
    for _ in range(links):
        codes = [main] if order == "failed" else [main, user]
        linker = Linker(*codes, options=LinkerOptions(arch="sm_90"), backend="driver")
        try:
            linker.link("cubin")
            assert order != "failed"
        except LinkError:
            assert order == "failed"
        if order == "collect":
            linker.itself = linker
        else:
            linker.close()
        del linker
        gc.collect()
        options |= {violation.rule for violation in control.violations}
        red += bool(control.violations)
        control.consume(control.violations)
    results[f"{fault} {memory} {order}"] = red, sorted(options)
json.dump({"results": results, "alive": control.live_states}, sys.stdout)
