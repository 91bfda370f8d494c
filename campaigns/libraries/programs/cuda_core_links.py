"""Cuda-core on this process's driver: compile, link as PTX and as LTO-IR, load, find the kernel."""

import json
import sys

from cuda.bindings import driver
from cuda.core import Device, Linker, LinkerOptions, ObjectCode, Program, ProgramOptions

from pytest_cudalink.linker import sample

device = Device()
device.set_current()
arch = f"sm_{''.join(map(str, device.compute_capability))}"
facts = {"driver": driver.cuDriverGetVersion()[1], "arch": arch}
text = 'extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }'
program = Program(text, "c++", ProgramOptions(arch=arch))
facts["ptx"] = program.compile("ptx").code.lstrip()[:2].decode()
cubin = program.compile("cubin")
facts["kernel"] = cubin.get_kernel("twice").attributes.max_threads_per_block
for kind in ("ptx", "ltoir"):
    codes = [getattr(ObjectCode, f"from_{kind}")(m.code, name=m.name) for m in sample.compile_modules(kind, arch)]
    options = LinkerOptions(arch=arch, link_time_optimization=kind == "ltoir")
    linker = Linker(*codes, options=options)
    facts[f"{kind} backend"] = str(Linker.which_backend())
    linked = linker.link("cubin")
    linker.close()
    facts[f"{kind} registers"] = linked.get_kernel("apply_transform").attributes.num_regs
    try:
        str(linked.get_kernel("missing").attributes.num_regs)
    except Exception as error:  # noqa: BLE001 (its text is the answer)
        facts[f"{kind} missing"] = str(error)
json.dump(facts, sys.stdout)
