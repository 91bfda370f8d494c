"""Links through cuda-core's driver backend; prints at how many of them the driver's memory died too early."""

import gc
import json
import sys

import cuda.core
from cuda.bindings import driver as bindings
from cuda.core import Device, Linker, LinkerOptions, ObjectCode
from cuda.core import _linker as internals

from pytest_cudalink.emulator import preload
from pytest_cudalink.linker import sample

Device().set_current()
internals._driver, internals._use_nvjitlink_backend, internals._inited = bindings, False, False
codes = [ObjectCode.from_ptx(module.code, name=module.name) for module in sample.compile_modules("ptx", "sm_90")]
control = preload.emulated_driver()
control.start_watching()
red, options, before = 0, set(), control.event_count()
for number in range(int(sys.argv[1])):
    linker = Linker(*codes, options=LinkerOptions(arch="sm_90"))
    linker.link("cubin")
    if number % 3:
        linker.close()
    del linker
    gc.collect()
    options |= {violation.rule for violation in control.violations}
    red += bool(control.violations)
    control.consume(control.violations)
links = sum("result" in event and event["call"] == "cuLinkComplete" for event in control.events(before))
json.dump({"version": cuda.core.__version__, "red": red, "links": links, "options": sorted(options)}, sys.stdout)
